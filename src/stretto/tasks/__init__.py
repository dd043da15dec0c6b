"""Front end: jobs as trees of units. Each unit runs as a stage with its own number of workers."""
