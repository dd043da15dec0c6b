"""The documentation site: pages of the repository gathered into a source of Sphinx, built, and checked."""
