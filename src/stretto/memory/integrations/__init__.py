"""Lightning and Hugging Face Transformers within a budget of device memory."""
