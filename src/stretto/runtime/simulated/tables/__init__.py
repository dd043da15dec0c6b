"""Jobs over tables in virtual time."""
