"""Least squares with few features: solved from means and inner products, which one pass over the data computes."""
