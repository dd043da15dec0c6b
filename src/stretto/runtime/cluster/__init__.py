"""Several processes, on one machine or many: Ray places and restarts them, ZeroMQ carries what they tell each other."""
