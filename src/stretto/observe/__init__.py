"""Listens to events: the run record, progress on the screen, the workers' timeline, plots.

Nothing here steers a run, and no other room needs this one but for `events`.
"""
