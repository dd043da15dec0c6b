"""Runs on several processes, on one machine or many: Ray starts and restarts them, ZeroMQ carries their messages."""
