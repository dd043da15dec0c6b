"""Loop analysis: accesses, dependence vectors, parallelisation strategy, placements and slices."""
