"""Ahead-of-time compilation of common kernels, on this machine (`fill`) or for a wheel (`ship`)."""
