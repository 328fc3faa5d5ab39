"""One model on many devices: pipeline, data, sharded-data and tensor parallel in one mesh."""
