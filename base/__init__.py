"""What every stage builds on: errors, schemas, part sets, storage, engine, config, progress. Imports no stage."""
