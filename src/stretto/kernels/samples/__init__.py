"""Linear classification by rows: dual coordinate descent, steps with variance reduction, mini-batches."""
