"""Solvers that the estimators run: sparse linear regression, softmax regression and matrix factorisation."""
