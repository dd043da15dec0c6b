"""Where a plan runs: serial, threads, streamed from disk; checkpoints and the loop over epochs. Only this room acts."""
