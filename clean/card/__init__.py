"""Write the dataset card of a corpus."""
