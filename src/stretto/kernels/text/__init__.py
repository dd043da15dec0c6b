"""Kernels of readers: text to numbers, ids to indices."""
