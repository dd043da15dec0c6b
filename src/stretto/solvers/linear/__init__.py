"""Sparse linear regression by working sets, with the columns in local memory or on the nodes of a cluster."""
