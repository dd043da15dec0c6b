"""`MatrixFactorization`: the estimator, its input, fold-in, scoring and persistence."""
