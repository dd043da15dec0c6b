"""Door: parameter tables. A worker function that reads, adds and ticks goes in, a run comes out."""
