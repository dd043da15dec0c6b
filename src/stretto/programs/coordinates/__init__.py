"""`SparseRegression`: coordinate descent in scheduled rounds, in compiled code."""
