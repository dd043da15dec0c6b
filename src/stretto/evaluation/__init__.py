"""How well a recommender does: splits of ratings, cross-validation, tables of metrics, scorers."""
