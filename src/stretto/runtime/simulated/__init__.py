"""A cluster in one process: real numbers, virtual time, any network and any fault, the same for the same seed."""
