"""Codes of the losses of a prediction, for kernels. Importing them imports no compiler."""

from __future__ import annotations

SQUARED, ABSOLUTE, LOGISTIC = range(3)
CODES = {"squared": SQUARED, "absolute": ABSOLUTE, "logistic": LOGISTIC}
