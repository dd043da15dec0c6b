"""Costs of operations in seconds and in temporary memory: measured on a device, or estimated."""
