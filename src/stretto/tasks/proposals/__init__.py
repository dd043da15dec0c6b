"""Proposals of the planner: where the states of a task should be, at which cost, and why."""
