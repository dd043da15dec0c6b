"""Arithmetic with the same bits on every processor: lanes, vectors, random numbers, small linear algebra."""
