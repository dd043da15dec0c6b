"""One training step on several devices: split its graph, plan each device, and run them together."""
