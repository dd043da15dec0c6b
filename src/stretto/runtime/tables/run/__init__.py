"""The pure state machine of a job over tables: events in, instructions out. Used by all runtimes."""
