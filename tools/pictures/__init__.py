"""Pictures of the documentation that are no benchmark: python -m tools.pictures [NAME …]."""
