"""`Data` and its kin: sparse, dense, ragged and lazy records."""
