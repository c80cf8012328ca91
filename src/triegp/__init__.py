"""triegp: exact Gaussian-process regression with binary tree kernels."""

__version__ = "0.1.0.dev0"
