"""Loops with sync="adaptive": which units they tune, with which settings, and what is undone when a trial diverges."""
