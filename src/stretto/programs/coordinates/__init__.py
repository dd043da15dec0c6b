"""`SparseRegression`: coordinate descent by rounds, in compiled code."""
