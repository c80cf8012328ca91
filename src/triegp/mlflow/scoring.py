"""What MLflow's `python_function` models predict: a data frame with distributions of new rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from triegp.estimators.loading import load
from triegp.models.distribution import check_quantiles, interval_quantiles

Floats = npt.NDArray[np.float64]

COLUMNS = ("mean", "std", "low", "high")
BLOCK_ROWS = 16_384  # rows whose distributions are in memory at a time


@dataclass(frozen=True)
class Request:
    """What to predict; the fields are the `params` of `predict`, and their defaults.

    Attributes
    ----------
    output : tuple of str
        Columns of the result, of COLUMNS, in this order.
    coverage : float
        Probability that the interval from `low` to `high` contains a new observation.
    quantiles : tuple of float
        Probabilities of quantiles, which become columns such as `q0.05`, after the others.
    latent : bool
        Whether to predict the function instead of a new observation, which includes noise.
    """

    output: tuple[str, ...] = COLUMNS
    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    latent: bool = False

    @classmethod
    def read(cls, params: Mapping[str, Any] | None) -> Self:
        """The `params` of a prediction, checked; those that are not given have their default."""
        given = dict(params or {})
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"params must be of {', '.join(known)}, got {', '.join(unknown)}")
        for name in ("output", "quantiles"):
            if name in given:
                given[name] = _several(name, given[name])
        found = cls(**given)
        wrong = [name for name in found.output if name not in COLUMNS]
        if wrong or len(set(found.output)) < len(found.output):
            raise ValueError(
                f"output must be distinct columns of {', '.join(COLUMNS)}, got {found.output}"
            )
        if not (found.output or found.quantiles):
            raise ValueError("output and quantiles must not both be empty")
        if found.quantiles:
            check_quantiles(found.quantiles)
        if len(set(found.quantiles)) < len(found.quantiles):
            raise ValueError(f"quantiles must be distinct, got {found.quantiles}")
        interval_quantiles(found.coverage)
        if not isinstance(found.latent, bool | np.bool_):
            raise ValueError(f"latent must be True or False, got {found.latent!r}")
        return found

    @property
    def columns(self) -> list[str]:
        """Names of the columns of one target."""
        return [*self.output, *(f"q{level!r}" for level in self.quantiles)]


class Scorer:
    """A fitted estimator as MLflow's `python_function` calls it.

    Parameters
    ----------
    estimator : BinaryTreeGPRegressor or TrieGPRegressor
        Fitted.
    targets : sequence of str, optional
        Names of the targets, which go in front of the names of columns. By default, a single target
        has none, and several are y0, y1, ...
    """

    def __init__(self, estimator: Any, targets: Sequence[str] | None = None) -> None:
        self._estimator = estimator
        self._prefixes = _prefixes(targets, int(estimator.target_mean_.size))

    def get_raw_model(self) -> Any:
        """The estimator."""
        return self._estimator

    def columns(self, request: Request) -> list[str]:
        """Names of the columns of the result, those of one target after those of another."""
        return [prefix + name for prefix in self._prefixes for name in request.columns]

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predictions of new rows, one float64 column per number.

        Parameters
        ----------
        model_input : data frame or array (m, n_features)
            New rows; there may be none.
        params : dict, optional
            Fields of Request.

        Returns
        -------
        DataFrame (m, n_targets * n_columns)
            With the index of `model_input`.

        Notes
        -----
        Distributions are computed once for all columns, in blocks of BLOCK_ROWS rows. The mean
        alone is quicker: variances are then not computed.
        """
        request = Request.read(params)
        X = pd.DataFrame(model_input) if isinstance(model_input, dict) else model_input
        index = X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(X))
        cut = X.iloc if isinstance(X, pd.DataFrame) else X
        names = self.columns(request)
        values = np.empty((len(index), len(names)))
        for first in range(0, len(index), BLOCK_ROWS):
            rows = slice(first, first + BLOCK_ROWS)
            values[rows] = self._predict_block(cut[rows], request)
        return pd.DataFrame(values, index=index, columns=names)

    def _predict_block(self, X: Any, request: Request) -> Floats:
        """All columns of some rows, (m, n_targets * n_columns)."""
        if set(request.columns) <= {"mean", "std"}:
            return self._predict_moments(X, request)
        found = self._estimator.predict_distribution(X, latent=request.latent)
        ends = [name for name in request.output if name in ("low", "high")]
        levels = [*(interval_quantiles(request.coverage) if ends else ()), *request.quantiles]
        columns: list[Floats] = []
        for one in found if isinstance(found, list) else [found]:
            quantiles = list(one.quantile(levels).T)
            own = dict(zip(("low", "high"), quantiles, strict=False)) if ends else {}
            for name in request.output:
                columns.append(own[name] if name in own else getattr(one, name)())
            columns += quantiles[2:] if ends else quantiles
        return np.column_stack(columns)

    def _predict_moments(self, X: Any, request: Request) -> Floats:
        """Means and standard deviations of some rows, (m, n_targets * n_columns)."""
        if "std" in request.output:
            both = self._estimator.predict(X, return_std=True, latent=request.latent)
            found = dict(zip(("mean", "std"), both, strict=True))
        else:
            found = {"mean": self._estimator.predict(X, latent=request.latent)}
        parts = [np.asarray(found[name]).reshape(len(X), -1) for name in request.output]
        return np.stack(parts, axis=-1).reshape(len(X), -1)


def load_scorer(path: str | Path, model_config: dict[str, Any] | None = None) -> Scorer:
    """Read a model for `mlflow.pyfunc.load_model`.

    Parameters
    ----------
    path : str or Path
        The model file.
    model_config : dict, optional
        `targets`, their names, if `save_model` was given some.
    """
    config = dict(model_config or {})
    targets = config.pop("targets", None)
    if config:
        raise ValueError(f"model_config must be targets alone, got {', '.join(sorted(config))}")
    return Scorer(load(path), targets)


def _several(name: str, value: Any) -> tuple[Any, ...]:
    """A list of a parameter as a tuple of Python's own values."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list, got {value!r}")
    return tuple(item.item() if isinstance(item, np.generic) else item for item in value)


def _prefixes(targets: Sequence[str] | None, n_targets: int) -> list[str]:
    """What goes in front of the names of columns, per target."""
    if targets is None:
        return [""] if n_targets == 1 else [f"y{t}_" for t in range(n_targets)]
    if isinstance(targets, str) or not all(isinstance(name, str) for name in targets):
        raise ValueError(f"targets must be a sequence of strings, got {targets!r:.80}")
    if len(targets) != n_targets or len(set(targets)) < n_targets:
        raise ValueError(f"targets must be {n_targets} distinct names, got {list(targets)!r:.80}")
    return [f"{name}_" for name in targets]
