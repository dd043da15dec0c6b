"""Lightning and Transformers under a budget of device memory."""
