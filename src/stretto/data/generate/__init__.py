"""Data sets drawn from a known model."""
