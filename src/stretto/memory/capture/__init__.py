"""Trace a training step into a fixed list of operations, check what it may not do, and lift it to a graph of
storages."""
