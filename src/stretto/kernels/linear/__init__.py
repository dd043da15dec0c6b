"""Kernels of linear models: coordinate descent, inner products, softmax regression."""
