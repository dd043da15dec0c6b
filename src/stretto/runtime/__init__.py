"""Where a plan runs: serial, threads, cluster or simulated; checkpoints and the loop over epochs."""
