"""A simulated cluster in one process: real computation, virtual time, configurable network and faults."""
