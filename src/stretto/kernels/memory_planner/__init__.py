"""Compiled loops of the memory planner."""
