"""Compiled loops of factorization machines: laying out mini-batches, epochs, predictions."""
