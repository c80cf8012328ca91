"""Scorers for scikit-learn: callables (estimator, X, y) whose value is higher if better.

They are passed as `scoring` to `cross_val_score`, `GridSearchCV` and the like, alone or in a
dictionary. The estimator is one with `predict_distribution`, a pipeline that ends in one, or a
search over such estimators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from triegp.metrics.distributions import LEVELS, calibration_error, crps, nll, quantiles_of
from triegp.metrics.forecasts import unwrap
from triegp.metrics.intervals import interval_score, pinball
from triegp.models.distribution import interval_quantiles


@dataclass(frozen=True)
class DistributionScorer(ABC):
    """Base class of the scorers.

    Parameters
    ----------
    sample_weight_request : bool, str or None, default=None
        Whether sample weights are asked for, or under which name, as `set_score_request` sets it.
    """

    sample_weight_request: bool | str | None = field(default=None, kw_only=True)

    @property
    def __name__(self) -> str:
        """Name in tables of other libraries, such as "neg_nll"."""
        return "neg_" + type(self).__qualname__.removesuffix("Scorer").lower()

    @abstractmethod
    def loss(self, y: Any, distribution: Any, sample_weight: Any) -> float:
        """The score whose negative is returned."""

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score of a fitted estimator on rows X (m, d) and targets y; higher is better.

        sample_weight: (m,), how often each row counts. Raises TypeError if the estimator does not
        predict distributions.
        """
        found = predict_distribution(estimator, X)
        return -self.loss(y, found, sample_weight)

    def __repr__(self) -> str:
        given = vars(self).items()
        shown = [f"{name}={value!r}" for name, value in given if value is not None]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def set_score_request(self, *, sample_weight: bool | str | None = None) -> Self:
        """The scorer that asks scikit-learn's metadata routing for sample weights, or not.

        sample_weight: True, False, or the name under which they are passed. The scorer itself stays
        as it is, other than scikit-learn's own.
        """
        return replace(self, sample_weight_request=sample_weight)

    def get_metadata_routing(self) -> MetadataRequest:
        """What the scorer asks scikit-learn's metadata routing for."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_weight", alias=self.sample_weight_request)
        return request


@dataclass(frozen=True, repr=False)
class NllScorer(DistributionScorer):
    """Negative of `nll`: the mean log density.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.metrics import nll_scorer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 1))
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0)
    >>> cross_val_score(model, X, y, cv=3, scoring=nll_scorer).shape
    (3,)
    """

    def loss(self, y: Any, distribution: Any, sample_weight: Any) -> float:
        """`nll`."""
        return float(nll(y, distribution, sample_weight=sample_weight))


@dataclass(frozen=True, repr=False)
class CrpsScorer(DistributionScorer):
    """Negative of `crps`."""

    def loss(self, y: Any, distribution: Any, sample_weight: Any) -> float:
        """`crps`."""
        return float(crps(y, distribution, sample_weight=sample_weight))


@dataclass(frozen=True, repr=False)
class PinballScorer(DistributionScorer):
    """Negative of `pinball` at some levels, (0.05, 0.5, 0.95) by default."""

    levels: tuple[float, ...] = (0.05, 0.5, 0.95)

    def loss(self, y: Any, distribution: Any, sample_weight: Any) -> float:
        """`pinball` of the distribution's quantiles."""
        found = _quantiles(distribution, self.levels)
        return float(pinball(y, found, self.levels, sample_weight=sample_weight))


@dataclass(frozen=True, repr=False)
class IntervalScorer(DistributionScorer):
    """Negative of `interval_score` of central intervals, of coverage 0.9 by default."""

    coverage: float = 0.9

    def loss(self, y: Any, distribution: Any, sample_weight: Any) -> float:
        """`interval_score` of the distribution's central interval."""
        found = _quantiles(distribution, interval_quantiles(self.coverage))
        return float(interval_score(y, found, self.coverage, sample_weight=sample_weight))


@dataclass(frozen=True, repr=False)
class CalibrationScorer(DistributionScorer):
    """Negative of `calibration_error` at some levels, 0.05, 0.1, ..., 0.95 by default."""

    levels: tuple[float, ...] = LEVELS

    def loss(self, y: Any, distribution: Any, sample_weight: Any) -> float:
        """`calibration_error`."""
        return calibration_error(y, distribution, levels=self.levels, sample_weight=sample_weight)


def predict_distribution(estimator: Any, X: Any) -> Any:
    """Distribution at new rows by an estimator, a pipeline or a search over them.

    In a pipeline, X goes through the steps before the last.
    """
    fitted, rows = unwrap(estimator, X)
    if not hasattr(fitted, "predict_distribution"):
        raise TypeError(
            "this scorer needs an estimator with predict_distribution, such as TrieGPRegressor, or "
            f"a pipeline that ends in one, got {type(fitted).__name__}"
        )
    return fitted.predict_distribution(rows)


def _quantiles(distribution: Any, levels: Any) -> Any:
    """Quantiles (m, k), or (m, k, n_targets) of a list of distributions."""
    if isinstance(distribution, list):
        return np.stack([quantiles_of(one, levels) for one in distribution], axis=2)
    return quantiles_of(distribution, levels)


nll_scorer = NllScorer()
crps_scorer = CrpsScorer()
pinball_scorer = PinballScorer()
interval_scorer = IntervalScorer()
calibration_scorer = CalibrationScorer()
