"""Arrays whose untouched pages take no memory; see `stretto.pages`."""

from stretto.pages import LEAST, Pages

__all__ = ["LEAST", "Pages"]
