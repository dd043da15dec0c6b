"""Compiled descent over groups of columns with several outputs, and the passes over the data that it needs."""
