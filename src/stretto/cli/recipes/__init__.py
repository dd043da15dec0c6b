"""Recipes: the complete settings of a training run, stored in the run record so that it can be repeated."""
