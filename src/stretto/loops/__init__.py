"""A door: a serial Python loop in, a plan out. Every part is a pure function over frozen values; `run` alone acts."""
