"""Plans and jobs of matrix factorisation by SGD, ALS and CCD++."""
