"""Compiling ahead: what users run most, on this machine (`fill`) or for a wheel (`ship`)."""
