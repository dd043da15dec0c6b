"""Files of a run: checkpoints, named arrays, arrays mapped from disk."""
