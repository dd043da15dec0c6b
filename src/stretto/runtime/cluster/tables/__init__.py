"""Jobs over tables on a cluster: driver, host task, nodes, workers and the merged recording."""
