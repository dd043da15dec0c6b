"""Kernels of schedules: selection of the jobs of the next round, and the engine that runs rounds."""
