"""Softmax regression by quasi-Newton, Newton and stochastic gradient steps."""
