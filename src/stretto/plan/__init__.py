"""The frozen plan: what can change a number, where states live, what it costs, in words and as a picture."""
