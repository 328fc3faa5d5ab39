"""The GPT-2 paper's tables and figures beside a model's own values, as one page."""
