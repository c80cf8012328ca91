"""The estimators on Dask arrays and data frames: `pip install 'triegp[dask]'`."""

from triegp.dask.estimators import DaskBinaryTreeGPRegressor, DaskTrieGPRegressor

__all__ = ["DaskBinaryTreeGPRegressor", "DaskTrieGPRegressor"]
