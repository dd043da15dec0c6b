"""From a loop tree to a typed tree: every type and conversion spelled out."""
