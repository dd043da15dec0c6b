"""`Data` and other record sets: sparse, dense, ragged and lazy."""
