"""Jobs as trees of stages: which stage runs next, where, and on how many workers."""
