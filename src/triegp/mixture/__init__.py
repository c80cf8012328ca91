"""Many trees averaged: each is a Gaussian process of its own, their predictions are mixed."""
