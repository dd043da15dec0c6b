"""Compiled inner loops and the few intrinsics they need; they know arrays and nothing else."""
