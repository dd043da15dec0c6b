"""Static plans on a cluster: row blocks stay on their node, column blocks rotate between the nodes."""
