"""Partitioned states and declared data as arguments of units: how they are recognised, read, and used."""
