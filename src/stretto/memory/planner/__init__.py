"""Plan one training step: from a graph of operations and a budget to a program for the device. Needs no torch."""
