"""Arrays whose untouched pages use no memory; re-exported from `stretto.pages`."""

from stretto.pages import LEAST, Pages

__all__ = ["LEAST", "Pages"]
