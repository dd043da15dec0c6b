"""Read files: formats, parsers, ids, and the cache of parsed files."""
