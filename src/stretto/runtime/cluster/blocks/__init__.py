"""Static plans on a cluster: row blocks stay with their node, column blocks travel."""
