"""Smaller problems with the same solution."""
