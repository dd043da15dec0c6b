"""Linear model estimators: `Lasso`, `ElasticNet`, `LassoCV`, `lasso_path`, `LogisticRegression`, `LinearSVC`."""
