"""Part sets: their files, schemas and digests, and the stages that make them."""
