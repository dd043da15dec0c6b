"""A plan for people: in words and as a picture."""
