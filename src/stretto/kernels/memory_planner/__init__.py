"""Kernels of the memory planner."""
