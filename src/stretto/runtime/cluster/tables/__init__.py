"""Jobs over tables on a cluster."""
