"""Rounds of programs in virtual time."""
