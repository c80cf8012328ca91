"""Models that only predict, for services: they start without scikit-learn and without compiling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from triegp.calibration.model import base_of, place_model
from triegp.checks import one_of
from triegp.engines import CpuEngine, Engine, PlainEngine
from triegp.estimators import units
from triegp.estimators.loading import KINDS, complete, read_model
from triegp.estimators.new_rows import NewRows
from triegp.estimators.outside import CHOICES
from triegp.estimators.predictions import Predictor
from triegp.estimators.repeats import MEANINGS
from triegp.files.codec import Arrays
from triegp.files.state import unpack_model
from triegp.imports import import_once
from triegp.models.state import ModelState

__all__ = ["ServedModel", "load"]

MOST_ROWS = 1 << 13  # of a mixture that starts without compiled kernels


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
        self.outside = one_of("outside", parameters["outside"], CHOICES)
        one_of("weights", parameters["weights"], MEANINGS)
        self.one_dimensional_ = state.one_dimensional
        self.n_features_in_ = state.stream.layout.n_columns
        if state.stream.columns.names is not None:
            self.feature_names_in_ = np.array(state.stream.columns.names, dtype=object)
        self._told = set()
        self._stream = state.stream
        self._make_lock()

    def __repr__(self) -> str:
        rows = f"{self._stream.n_rows:,} rows of {self.n_features_in_} features"
        return f"<{type(self).__name__}: {self.estimator_} fitted to {rows}>"

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle, which function draws need; a file is smaller, and safe to load."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_lock()

    @property
    def compiled_(self) -> bool:
        """Whether predictions use compiled kernels."""
        engine = getattr(base_of(self._stream.fitted[0]), "engine", None)
        return not isinstance(engine, PlainEngine)

    def compile(self) -> Self:
        """Compile the kernels of predictions, or load them from numba's cache, and use them.

        Single rows are then predicted about six times as fast. Compiling takes some seconds without
        a cache. Other threads may predict in the meantime: they use the model as it is until all is
        compiled. Predictions change by rounding errors only.
        """
        host = CpuEngine()
        twin = self._twin()
        fitted = tuple(place_model(part, host) for part in self._stream.fitted)
        twin._stream = replace(self._stream, fitted=fitted)
        row = self._stream.encoders[0].low_[None]
        rows, targets = NewRows(row, row[:0]), twin._targets()
        for latent in (False, True):
            units.predict_mean(targets, rows, latent=latent)
            units.predict_moments(targets, rows, latent=latent)
        units.predict_quantiles(targets, rows, np.array([0.5]), latent=False)
        with self._lock:
            self._stream = twin._stream
        return self

    def _refit(self) -> None:
        raise AssertionError("a served model has no waiting rows")


def load(path: str | Path) -> ServedModel:
    """Read a model that `save` wrote, for predictions only.

    scikit-learn is not imported, neither here nor by predictions of arrays, lists and data frames
    of numbers. A `BinaryTreeGPRegressor` of up to 8,192 rows starts without compiled kernels: it
    answers at once on a machine that has none in numba's cache. Call `compile` for speed, in a
    thread of its own if requests should not wait for it. Other models use compiled kernels from the
    start.

    Parameters
    ----------
    path : str or Path
        The file. Nothing in it is executed.

    Returns
    -------
    ServedModel
        With `predict`, `predict_interval`, `predict_distribution` and the other methods that
        predict. Predictions are those of `triegp.load`: to the last bit with compiled kernels, to
        rounding without.

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
    >>> bool(np.allclose(served.predict(X), model.predict(X), rtol=1e-12))
    True
    >>> served.compiled_, served.compile().compiled_
    (False, True)
    >>> bool((served.predict(X) == model.predict(X)).all())
    True
    """
    name, header, arrays = read_model(path)
    with complete(path):
        parameters = header["parameters"]
        engine = _starting_engine(name, arrays)
        state = unpack_model(header["model"], arrays, KINDS[name], engine)
        if name == "TrieGPRegressor":
            state = _with_variance(state, parameters["variance"])
        return ServedModel(name, parameters, state)


def _starting_engine(name: str, arrays: Arrays) -> Engine:
    """The engine that restores a model: without kernels if that takes less than to compile them."""
    sizes = [array.shape[0] for place, array in arrays.items() if place.endswith(".rows.0.y")]
    cells = any(place.endswith(".held.y") for place in arrays)
    small = not cells and max(sizes, default=0) <= MOST_ROWS
    return PlainEngine() if name == "BinaryTreeGPRegressor" and small else CpuEngine()


def _with_variance(state: ModelState, variance: str) -> ModelState:
    """The models with the parameter of that name."""
    known = import_once("triegp.additive.settings").VARIANCES  # needs compiled kernels, as they do
    one_of("variance", variance, known)
    with_variance = import_once("triegp.layers.layered").with_variance
    fitted = tuple(with_variance(part, variance) for part in state.stream.fitted)
    return replace(state, stream=replace(state.stream, fitted=fitted))
