"""What operations cost in seconds and in temporary memory: measured on a device, or estimated."""
