"""From files to data: formats, parsers, ids, the cache of parsed files."""
