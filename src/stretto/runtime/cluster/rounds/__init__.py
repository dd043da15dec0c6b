"""Rounds of programs on a cluster."""
