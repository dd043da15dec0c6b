"""Listeners for events of a run: the run record, progress bars, timelines, plots.

Listeners never change a run. Other packages import only `events` from this one.
"""
