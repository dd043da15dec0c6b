"""Static plans in one process: threads make the visits of a step, with data in memory or in files."""
