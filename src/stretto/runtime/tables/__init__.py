"""Jobs over tables in one process: the serial reference, threads, checkpoints, and the shared state machine (`run`)."""
