"""The estimators as skpro regressors, with whole distributions: `pip install 'triegp[skpro]'`."""

from triegp.skpro.distribution import TrieDistribution
from triegp.skpro.regressor import TrieProbaRegressor

__all__ = ["TrieDistribution", "TrieProbaRegressor"]
