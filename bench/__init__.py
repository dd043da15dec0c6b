"""Measurements: one module for each claim, one command for each: `python -m bench NAME`."""
