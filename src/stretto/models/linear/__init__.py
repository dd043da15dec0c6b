"""Linear model estimators: regression with sparse coefficients, its paths and cross-validation; classification."""
