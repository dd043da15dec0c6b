"""The worker side of tables: cached rows, buffered changes, reads that wait."""
