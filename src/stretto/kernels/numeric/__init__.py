"""Arithmetic with the same bits on every processor: vectors, random numbers, small linear algebra."""
