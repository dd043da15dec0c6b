"""The worker side of tables: cached rows, buffered changes, waiting reads."""
