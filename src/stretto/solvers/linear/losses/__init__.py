"""Losses of sparse regression: value, gradient, curvature, intercept and dual objective."""
