"""The estimators as BoTorch models; screening of candidates: `pip install 'triegp[botorch]'`."""

from triegp.botorch.model import TrieGPModel
from triegp.botorch.pool import suggest

__all__ = ["TrieGPModel", "suggest"]
