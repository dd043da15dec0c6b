"""Kernels of readers: parsing text to numbers, mapping ids to indices."""
