"""A smooth Gaussian process over rows: its kernel, and products with its kernel matrix."""
