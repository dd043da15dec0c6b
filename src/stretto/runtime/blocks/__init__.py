"""Static plans in one process: threads make the visits of a step, from memory or from files."""
