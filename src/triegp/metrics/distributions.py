"""Scores of predictive distributions.

A distribution is what `predict_distribution` and `loo_distribution` of an estimator return: a
PredictiveDistribution or a TransformedDistribution of m rows, for targets y (m,). For several
targets it is a list with one per column of y (m, n_targets), and scores are averaged over targets.
Rows are scored in blocks, on all cores, so little memory is needed beside the distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.checks import boolean
from triegp.engines import CpuEngine
from triegp.metrics.observed import Mask, Observed, read_observed
from triegp.models.crps import mixture_score, transformed_score
from triegp.models.distribution import (
    PredictiveDistribution,
    average,
    check_quantiles,
    fetch_distribution,
)
from triegp.models.transformed import TransformedDistribution

Floats = npt.NDArray[np.float64]
Distribution = PredictiveDistribution | TransformedDistribution

BLOCK_ROWS = 1 << 13  # rows at a time, per thread
LEVELS = tuple(k / 20 for k in range(1, 20))  # 0.05, 0.1, ..., 0.95


def nll(
    y: Any, distribution: Any, *, sample_weight: Any = None, by_row: bool = False
) -> float | Floats:
    """Negative log likelihood per row, in nats: -log p(y); lower is better.

    Parameters
    ----------
    y : array-like (m,) or (m, n_targets)
        Observed targets.
    distribution : PredictiveDistribution or TransformedDistribution, or list of them
        What was predicted, one per target.
    sample_weight : array-like (m,), optional
        How often each row counts. Rows at which y or the distribution is NaN are ignored if their
        weight is 0; otherwise ValueError is raised.
    by_row : bool, default=False
        Whether to return the score of each row instead of the mean.

    Returns
    -------
    float, or float64 (m,) or (m, n_targets)
        Infinite for y outside the domain of a transformed target. NaN at rows that are ignored.

    Notes
    -----
    O(K m) for K components. It depends on the units of y: in units u times as large, it is log(u)
    smaller.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.metrics import nll
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    >>> round(nll([0.0, 2.0], normal), 4)
    1.9189
    """
    return _score(y, distribution, sample_weight, by_row, lambda found, own: -found.log_prob(own))


def crps(
    y: Any, distribution: Any, *, sample_weight: Any = None, by_row: bool = False
) -> float | Floats:
    """Continuous ranked probability score, in units of y; lower is better.

    The integral of (F(x) - 1[x >= y])^2 for the distribution function F: the absolute error, if the
    distribution is a single number.

    Parameters
    ----------
    y, distribution, sample_weight, by_row
        As in `nll`.

    Returns
    -------
    float, or float64 (m,) or (m, n_targets)
        The mean, or the score of each row.

    Notes
    -----
    Exact for mixtures of Gaussians, by E|x - y| - E|x - x'| / 2 in closed form. O(K^2 m) for K
    components: about a second for a million rows and 25 components that share their mean, and four
    seconds if they do not, per core.

    For transformed targets by quadrature, with an error below 1e-5 of the score, or 1e-4 if the
    transform has kinks as "quantile" has; about a minute for a million rows and 25 components, per
    core. As in the mean and deviation of a TransformedDistribution, values beyond its `limits` are
    moved to the limit. Otherwise the score of a log-transformed target would often be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.metrics import crps
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    >>> crps([0.0, 2.0], normal, by_row=True).round(4)
    array([0.2337, 1.4528])
    """
    return _score(y, distribution, sample_weight, by_row, _crps)


def pit(y: Any, distribution: Any, *, sample_weight: Any = None) -> Floats:
    """Probability integral transform: F(y) at each row.

    Uniform on [0, 1] if the distributions are right. y at a point mass counts as half above it.

    Parameters
    ----------
    y, distribution
        As in `nll`.
    sample_weight : array-like (m,), optional
        Says which rows may be NaN: those of weight 0.

    Returns
    -------
    float64 (m,) or (m, n_targets)
        Values in [0, 1]. NaN at rows that are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.metrics import pit
    >>> normal = PredictiveDistribution(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    >>> pit([0.0, 2.0], normal).round(4)
    array([0.5   , 0.9772])
    """
    found = _score(y, distribution, sample_weight, True, _pit)
    assert isinstance(found, np.ndarray)
    return found


def calibration_error(
    y: Any, distribution: Any, *, levels: Any = LEVELS, sample_weight: Any = None
) -> float:
    """Mean distance between the coverage of central intervals and their nominal coverage.

    Parameters
    ----------
    y, distribution, sample_weight
        As in `nll`.
    levels : float or array-like (k,), default=(0.05, 0.1, ..., 0.95)
        Nominal coverages, strictly between 0 and 1.

    Returns
    -------
    float
        Between 0 and 1. Even if the distributions are right, it is about 0.3 / sqrt(m) for m rows.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.metrics import calibration_error
    >>> y = np.random.default_rng(0).standard_normal(10_000)
    >>> def normal(sd):
    ...     return PredictiveDistribution(
    ...         np.ones(1), np.zeros((1, y.size)), np.full((1, y.size), sd**2)
    ...     )
    >>> calibration_error(y, normal(1.0)) < 0.01 < 0.1 < calibration_error(y, normal(2.0))
    True
    """
    nominal = check_quantiles(levels, "levels")
    observed = read_observed(y, sample_weight)
    values = pit(y, distribution, sample_weight=sample_weight).reshape(observed.n_rows, -1)
    # An interval with probability c between two equal tails contains y if F(y) is that central.
    away = 2.0 * np.abs(values - 0.5)
    errors = [
        abs(observed.average(np.where(column[:, None] <= level, 1.0, 0.0)) - level)
        for column in away.T
        for level in nominal.tolist()
    ]
    return float(np.mean(errors))


def quantiles_of(distribution: Distribution, levels: Any) -> Floats:
    """Quantiles (m, k) at levels (k,), in blocks of rows on all cores."""
    out = np.empty((distribution.n_rows, len(levels)))

    def work(_: object, block: slice) -> None:
        out[block] = distribution.select(block).quantile(levels)

    CpuEngine().each(work, _blocks(distribution.n_rows))
    return out


def read_distributions(distribution: Any, observed: Observed) -> list[Distribution]:
    """One distribution per target, on the host; raises an error if they do not fit the targets."""
    found = distribution if isinstance(distribution, list | tuple) else [distribution]
    for one in found:
        if not isinstance(one, Distribution):
            raise TypeError(
                "distribution must be a PredictiveDistribution or a TransformedDistribution, as "
                f"`predict_distribution` returns it, or a list of them, got {type(one).__name__}"
            )
    shape = (observed.n_rows,) if observed.one_dimensional else observed.y.shape
    several = found is distribution
    if len(found) != observed.y.shape[1] or (several and observed.one_dimensional):
        held = f"a list of {len(found)}" if several else "one"
        raise ValueError(
            "distribution must be one for y of shape (m,), and a list of one per column for y of "
            f"shape (m, n_targets), got {held} for y of shape {shape}"
        )
    for one in found:
        if one.n_rows != observed.n_rows:
            raise ValueError(
                f"distribution must have as many rows as y, {observed.n_rows}, got {one.n_rows}"
            )
    return [_on_host(one) for one in found]


def _on_host(found: Distribution) -> Distribution:
    if isinstance(found, TransformedDistribution):
        return replace(found, base=fetch_distribution(found.base))
    return fetch_distribution(found)


def _score(
    y: Any,
    distribution: Any,
    sample_weight: Any,
    by_row: bool,
    score: Callable[[Distribution, Floats], Floats],
) -> float | Floats:
    """Score every row that is not NaN, in blocks on all cores."""
    whole = boolean("by_row", by_row)
    observed = read_observed(y, sample_weight)
    found = read_distributions(distribution, observed)
    blocks = _blocks(observed.n_rows)
    out = np.full(observed.y.shape, np.nan)
    for t, one in enumerate(found):
        missing = np.concatenate([_missing(one, block) for block in blocks])
        known = observed.known("distribution", missing) & ~np.isnan(observed.y[:, t])
        own, values = observed.y[:, t], out[:, t]

        def work(
            _: object,
            block: slice,
            one: Distribution = one,
            known: Mask = known,
            own: Floats = own,
            values: Floats = values,
        ) -> None:
            some: Any = block
            if not known[block].all():
                some = block.start + np.flatnonzero(known[block])
                if not some.size:
                    return
            values[some] = score(one.select(some), own[some])

        CpuEngine().each(work, blocks)
    return observed.result(out, whole=whole)


def _blocks(n_rows: int) -> list[slice]:
    return [slice(k, k + BLOCK_ROWS) for k in range(0, n_rows, BLOCK_ROWS)]


def _missing(found: Distribution, rows: slice) -> Mask:
    """Whether the distribution is NaN at each of some rows."""
    base = found.base if isinstance(found, TransformedDistribution) else found
    some = base.select(rows)
    centre = some.means[:1] if some.means.strides[0] == 0 else some.means
    return np.asarray(np.isnan(some.variances).any(axis=0) | np.isnan(centre).any(axis=0))


def _crps(found: Distribution, y: Floats) -> Floats:
    if isinstance(found, TransformedDistribution):
        return transformed_score(found, y)
    return mixture_score(found, y)


def _pit(found: Distribution, y: Floats) -> Floats:
    below = found.cdf(y)
    base = found.base if isinstance(found, TransformedDistribution) else found
    if not (base.variances == 0).any():
        return below
    z = found.transform.forward(y) if isinstance(found, TransformedDistribution) else y
    here = (base.variances == 0) & (base.means == z)
    return below - 0.5 * average(base.weights, here.astype(np.float64))
