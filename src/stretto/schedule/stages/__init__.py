"""The stages of tasks: which one runs next, where, and how wide."""
