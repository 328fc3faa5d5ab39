"""The ground floor: errors, schemas, part sets, storage, engine, config, progress. Imports no stage."""
