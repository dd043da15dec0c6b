"""Jobs over tables on simulated nodes, in virtual time."""
