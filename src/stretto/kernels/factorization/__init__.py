"""Kernels of matrix factorization: SGD, ALS, CCD++, fold-in, ranking."""
