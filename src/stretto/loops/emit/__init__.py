"""From a typed tree to the source of a compiled worker."""
