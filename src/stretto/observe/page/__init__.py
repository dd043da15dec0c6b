"""Pages of runs: the live page of `stretto dashboard`, and the file of `stretto report`, from the same run records."""
