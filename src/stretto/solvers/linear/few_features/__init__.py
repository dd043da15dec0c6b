"""Logistic regression with few dense features: Newton steps, a whole fit in one compiled call."""
