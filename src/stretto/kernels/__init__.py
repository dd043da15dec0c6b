"""Compiled inner loops and their intrinsics; they operate on plain arrays only."""
