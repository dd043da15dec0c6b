"""Kernels of topic models: Gibbs and Metropolis-Hastings sampling, inference, co-occurrence."""
