"""Device addresses: which allocation gets which, and how much is lost between them."""
