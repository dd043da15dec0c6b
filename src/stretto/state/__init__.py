"""What is learned: rows cut into blocks."""
