"""Seed words of topics: what the user gives, and the prior tokens that they become."""
