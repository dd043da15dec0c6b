"""From a user's function to a loop tree: its source, its names, its arguments."""
