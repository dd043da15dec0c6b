"""Describe a plan to users: as text and as a plot."""
