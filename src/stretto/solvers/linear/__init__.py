"""Sparse regression by working sets, in one memory or with columns on nodes."""
