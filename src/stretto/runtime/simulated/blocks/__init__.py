"""Static plans in virtual time: the cluster's own driver and nodes on simulated hosts."""
