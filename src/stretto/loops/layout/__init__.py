"""How the iterations of a loop are cut into visits, and in which order they go."""
