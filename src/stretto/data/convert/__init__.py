"""From arrays, frames and sparse matrices in memory to `Data`."""
