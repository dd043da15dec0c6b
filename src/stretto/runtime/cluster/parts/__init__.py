"""Map functions over the parts of a data set that nodes hold."""
