"""Find inputs, and import files and datasets as documents."""
