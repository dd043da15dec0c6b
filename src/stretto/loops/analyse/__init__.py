"""What a loop reads and writes, which iterations depend on each other, and how it may run in parallel."""
