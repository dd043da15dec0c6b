"""Building blocks of all kernels: compilation, atomics, claiming of blocks, scratch arrays."""
