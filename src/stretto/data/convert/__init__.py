"""Convert arrays, data frames and sparse matrices in memory to `Data`."""
