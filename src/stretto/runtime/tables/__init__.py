"""The state machine of a job over tables: the same decisions on serial, threads, the simulator and the cluster."""
