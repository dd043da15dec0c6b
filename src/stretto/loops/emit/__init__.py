"""Code generation: from a typed tree to Numba source of a worker."""
