"""The base of all stages: errors, schemas, part sets, storage, engine, config, progress. Imports no stage."""
