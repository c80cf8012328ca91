"""Mixture of trees: each is a separate Gaussian process, and their predictions are mixed."""
