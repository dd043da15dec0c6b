"""Describing, merging and comparing topics, and choosing how many: names, the map, shares over time, sweeps."""
