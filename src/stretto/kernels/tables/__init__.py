"""Kernels of parameter tables: rows by key, pending changes, ranks, server functions."""
