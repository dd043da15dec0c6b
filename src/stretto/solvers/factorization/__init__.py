"""Matrix factorization by SGD, ALS and CCD++ as plans."""
