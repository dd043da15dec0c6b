"""Kernels of readers: parsing text to numbers, finding words, mapping ids to indices."""
