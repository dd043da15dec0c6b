"""Products and factors for Newton steps of linear models."""
