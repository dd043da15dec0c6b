"""Smaller problems: with the same solution as the whole one, or on the columns that its solution may have."""
