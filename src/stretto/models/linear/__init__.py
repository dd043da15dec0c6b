"""`Lasso`, `ElasticNet`, `LassoCV`, `lasso_path`, `LogisticRegression`."""
