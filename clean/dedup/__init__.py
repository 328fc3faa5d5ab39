"""Exact and near duplicates: which documents say what another one already says."""
