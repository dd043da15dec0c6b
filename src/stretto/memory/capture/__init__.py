"""A training step as a list of operations: tracing it, what it may not do meanwhile, and lifting it to storages."""
