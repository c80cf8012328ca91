"""triegp: exact Gaussian-process regression with binary tree kernels, in linear time."""

from triegp.additive.solve import NotConverged
from triegp.encoding import BitEncoder
from triegp.estimators.loading import load
from triegp.estimators.mixture_regressor import BinaryTreeGPRegressor
from triegp.estimators.trie_regressor import TrieGPRegressor
from triegp.files.container import ModelFileError
from triegp.models.distribution import PredictiveDistribution
from triegp.models.transformed import TransformedDistribution

__version__ = "0.1.0.dev0"

__all__ = [
    "BinaryTreeGPRegressor",
    "BitEncoder",
    "ModelFileError",
    "NotConverged",
    "PredictiveDistribution",
    "TransformedDistribution",
    "TrieGPRegressor",
    "load",
]
