"""Rounds of programs on a cluster: driver, nodes, and the parameter patches that they receive."""
