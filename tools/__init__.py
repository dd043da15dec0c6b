"""Scripts for developers: what generates pages of the documentation."""
