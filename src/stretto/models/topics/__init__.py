"""`LatentDirichletAllocation`: the estimator, its corpus, priors, inference and evaluation."""
