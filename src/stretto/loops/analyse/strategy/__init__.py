"""The choice of the strategy of a loop: each strategy, the cheapest cut, and what to do where none applies."""
