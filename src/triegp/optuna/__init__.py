"""A sampler of Optuna that searches with a triegp model: `pip install 'triegp[optuna]'`."""

from triegp.optuna.sampler import TrieSampler

__all__ = ["TrieSampler"]
