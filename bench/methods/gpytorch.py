"""GPyTorch's Gaussian processes."""

METHODS = ()
