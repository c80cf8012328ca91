"""Models that only predict, for services: they load without scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from triegp.calibration.model import base_of, with_base
from triegp.estimators.loading import complete, read_model
from triegp.estimators.predictions import Predictor
from triegp.estimators.streaming import stream_of
from triegp.files.formats import format_of
from triegp.files.state import ModelState, unpack_model

__all__ = ["ServedModel", "load"]


class ServedModel(Predictor):
    """A fitted model that only predicts; `triegp.serving.load` reads it from a file.

    It has the prediction methods, leave-one-out and the fitted attributes that both estimators
    share, but no parameters. It cannot be fitted, take in rows or be saved: for that, read the file
    with `triegp.load`.

    Attributes
    ----------
    estimator_ : str
        Name of the estimator that was saved.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : object array (n_features,)
        Names of the columns; not defined if they have none.
    """

    estimator_: str
    n_features_in_: int
    feature_names_in_: Any

    def __init__(self, estimator: str, parameters: dict[str, Any], state: ModelState) -> None:
        self.estimator_ = estimator
        self.outside = parameters["outside"]
        self.weights = parameters["weights"]
        self.one_dimensional_ = state.one_dimensional
        self.n_features_in_ = state.layout.n_columns
        if state.columns.names is not None:
            self.feature_names_in_ = np.array(state.columns.names, dtype=object)
        self._told = set()
        self._stream = stream_of(state)
        self._make_lock()

    def __repr__(self) -> str:
        rows = f"{self._stream.n_rows:,} rows of {self.n_features_in_} features"
        return f"<{type(self).__name__}: {self.estimator_} fitted to {rows}>"

    def _refit(self) -> None:
        raise AssertionError("a served model has no waiting rows")


def load(path: str | Path) -> ServedModel:
    """Read a model that `save` wrote, for predictions only; they have the same bits.

    scikit-learn is not imported, neither here nor by predictions of arrays, lists and data frames
    of numbers.

    Parameters
    ----------
    path : str or Path
        The file. Nothing in it is executed.

    Returns
    -------
    ServedModel
        With `predict`, `predict_interval`, `predict_distribution` and the other methods that
        predict.

    Raises
    ------
    FileNotFoundError, ModelFileError, MemoryError
        As for `triegp.load`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor, serving
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 2))
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, X.sum(axis=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.triegp"
    ...     model.save(path)
    ...     served = serving.load(path)
    >>> served
    <ServedModel: BinaryTreeGPRegressor fitted to 200 rows of 2 features>
    >>> bool((served.predict(X) == model.predict(X)).all())
    True
    """
    name, header, arrays = read_model(path)
    with complete(path):
        parameters = header["parameters"]
        state = unpack_model(header, arrays, format_of(name))
        if name == "TrieGPRegressor":
            state = _with_variance(state, parameters["variance"])
        return ServedModel(name, parameters, state)


def _with_variance(state: ModelState, variance: str) -> ModelState:
    """The models with the parameter of that name."""
    bases = [replace(cast(Any, base_of(part)), variance=variance) for part in state.fitted]
    pairs = zip(state.fitted, bases, strict=True)
    return replace(state, fitted=tuple(with_base(part, base) for part, base in pairs))
