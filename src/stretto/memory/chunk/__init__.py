"""Split operations that are too large into chunks along one dimension of their tensors."""
