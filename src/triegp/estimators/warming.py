"""Compile and cache the kernels of the CPU engine before they are needed."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from triegp.estimators.mixture_regressor import BinaryTreeGPRegressor
from triegp.estimators.trie_regressor import TrieGPRegressor

# Rows of the fits. Beyond 2,000 rows `TrieGPRegressor` computes smooth part and solve by other
# kernels.
FEW_ROWS, MORE_ROWS = 600, 2_100
# More than 10,000 rows for a mixture to hold cells, and more than 32,768 to be sorted in parallel.
CELL_ROWS, MAX_CELLS = 34_000, 500
N_FEATURES = 3


def warm_up() -> float:
    """Compile all kernels that fits and predictions of both estimators use on the CPU.

    numba writes compiled kernels to its cache on disk, so later processes of the same user and
    machine load them in milliseconds. Call this once while a container image is built, or before
    a server takes requests. The cache lies in the folder NUMBA_CACHE_DIR if that is set, otherwise
    in `__pycache__` beside the package's files. If no folder can be written to, kernels are
    compiled for this process only, and a RuntimeWarning says so.

    Returns
    -------
    float
        Seconds that it took: about 39 with an empty cache, about 20 if all kernels are cached.

    Notes
    -----
    Fits small models to random numbers; the global random state is not used. The kernels of the
    CUDA engine are not compiled.

    Examples
    --------
    >>> import triegp
    >>> seconds = triegp.warm_up()  # doctest: +SKIP
    """
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="triegp")  # what is fitted here is no advice
        for model, n_rows in _models():
            _use(model, n_rows)
    return time.perf_counter() - start


def _models() -> list[tuple[Any, int]]:
    """Models, and the number of rows that each is fitted to."""
    few: dict[str, Any] = {"engine": "cpu", "max_iter": 2, "random_state": 0}
    return [
        (BinaryTreeGPRegressor(n_members=2, n_candidates=2, **few), FEW_ROWS),
        (BinaryTreeGPRegressor(n_members=2, max_cells=MAX_CELLS, **few), CELL_ROWS),
        (TrieGPRegressor(n_trees=4, **few), FEW_ROWS),
        (TrieGPRegressor(n_trees=4, **few), MORE_ROWS),
    ]


def _use(model: Any, n_rows: int) -> None:
    """Fit a model, and ask for everything that it predicts."""
    rng = np.random.default_rng(0)
    X = rng.random((n_rows + 40, N_FEATURES))
    y = np.sin(6 * X[:, 0]) + X[:, 1] * rng.standard_normal(len(X))
    new = X[n_rows:]
    model.fit(X[:n_rows], y[:n_rows])
    for some in (new[:1], new):
        for latent in (False, True):
            model.predict(some, latent=latent)
            model.predict(some, return_std=True, latent=latent)
            model.predict_interval(some, latent=latent)
    model.predict(new, return_cov=True)
    model.sample_y(new, 2)
    if n_rows != CELL_ROWS:  # cells do not keep all rows
        model.loo_predict()
    model.partial_fit(new, y[n_rows:])
    model.predict(new, return_std=True)
