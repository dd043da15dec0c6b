"""Kernels of schedules: which jobs make the next round, and the engine that runs rounds."""
