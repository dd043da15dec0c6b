"""Compiled loops of the memory planner: timelines, recomputation costs, instructions, addresses."""
