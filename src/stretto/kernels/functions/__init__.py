"""Functions of single numbers with the same bits on every processor: by tables, and gamma functions."""
