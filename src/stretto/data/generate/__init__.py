"""Generate synthetic data sets from a known model."""
