"""The frozen plan of a run: arrays, kernels, order of visits, cost and fingerprint; explain() and draw()."""
