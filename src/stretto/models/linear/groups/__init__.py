"""Regressors whose penalty is of groups of coefficients: `GroupLasso`, `MultiTaskLasso`, `MultiTaskElasticNet`."""
