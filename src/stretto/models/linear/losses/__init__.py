"""Regressors with another loss than squares: `PoissonRegressor` and `HuberElasticNet`."""
