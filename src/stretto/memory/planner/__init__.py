"""From a graph and a budget to a program for the device. Needs no torch."""
