"""Samples with targets, read from files for `stretto train lasso` and `stretto train logistic`."""
