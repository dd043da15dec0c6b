"""Compilation of kernels to machine code: linking helpers, hashing sources, storing and shipping the result."""
