"""Rounds of programs on simulated nodes, in virtual time."""
