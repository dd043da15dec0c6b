"""Factorization machines by AdaGrad over mini-batches."""
