"""What every kernel is built from: compiling, atomics, claims of blocks, scratch space."""
