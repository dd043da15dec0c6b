"""`schedule="auto"`: candidates, trials, and the choice between them."""
