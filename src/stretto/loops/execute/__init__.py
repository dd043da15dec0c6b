"""Running compiled loops: passes, waves, scheduled rounds, buffer memory and prefetch."""
