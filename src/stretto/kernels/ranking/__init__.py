"""Kernels that judge ranked lists against held-out items."""
