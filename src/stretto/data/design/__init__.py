"""The matrix of a regression, by columns, in memory or in files."""
