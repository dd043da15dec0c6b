"""Type inference of loop bodies: from the loop tree to a typed tree with explicit types and conversions."""
