"""Least squares with one or several outputs and penalties of groups of coefficients."""
