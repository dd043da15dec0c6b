"""A door: what to update together, how to update it, and how to put the results together; a plan comes out."""
