"""One step on several devices."""
