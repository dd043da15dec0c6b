"""Rounds of programs on threads."""
