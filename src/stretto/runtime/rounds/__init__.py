"""Rounds of programs in one process: on threads or on the caller's own thread."""
