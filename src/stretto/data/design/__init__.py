"""Design matrices of regressions, stored by columns, in memory or in files."""
