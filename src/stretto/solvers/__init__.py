"""What estimators run: sparse regression by working sets, over columns in this memory or on the nodes of a cluster."""
