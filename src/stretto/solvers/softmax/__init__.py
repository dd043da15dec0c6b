"""Softmax regression: quasi-Newton, Newton and stochastic steps."""
