"""Predictive distributions as a distribution of skpro."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr
from skpro.distributions.base import BaseDistribution

from triegp.metrics import crps
from triegp.models.distribution import PredictiveDistribution, average
from triegp.models.transformed import TransformedDistribution

Floats = npt.NDArray[np.float64]

ROOT_2PI = float(np.sqrt(2.0 * np.pi))


class TrieDistribution(BaseDistribution):  # type: ignore[misc]
    """Predictive distributions of one or more targets, as skpro reads them.

    Density, distribution function, quantiles and moments are those of `PredictiveDistribution` and
    `TransformedDistribution`, without approximation. Entries are independent of each other.

    Parameters
    ----------
    found : sequence of PredictiveDistribution or TransformedDistribution
        One per column, all with the same number of rows.
    index, columns : pandas.Index, optional
        Labels of rows and columns; numbers from 0 by default. If neither is given and `found` is
        one distribution at one row, this is a scalar distribution in skpro's sense.

    Examples
    --------
    >>> import numpy as np
    >>> from triegp import PredictiveDistribution
    >>> from triegp.skpro import TrieDistribution
    >>> halves, centres = np.array([0.5, 0.5]), np.array([[-1.0, 0.0], [1.0, 0.0]])
    >>> both = PredictiveDistribution(halves, centres, np.ones((2, 2)))
    >>> d = TrieDistribution([both], index=["a", "b"], columns=["y"])
    >>> d.var()
         y
    a  2.0
    b  1.0
    >>> d.ppf(0.95).round(2)
          y
    a  2.28
    b  1.64

    Notes
    -----
    O(K m) for K components and m rows; `ppf` with a level of its own at every entry solves each
    level for itself. `energy` is in closed form, O(K^2 m), so that skpro's CRPS is exact; for
    transformed targets it is the CRPS of `triegp.metrics`, by quadrature to 1e-5. `pdfnorm` is
    skpro's approximation, by samples.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(self, found: Any, index: Any = None, columns: Any = None) -> None:
        self.found = found
        parts = list(found)
        if not parts or not all(
            isinstance(part, PredictiveDistribution | TransformedDistribution) for part in parts
        ):
            kinds = ", ".join(type(part).__name__ for part in parts) or "nothing"
            raise ValueError(f"found must be distributions of triegp, one per column, got {kinds}")
        sizes = {part.n_rows for part in parts}
        if len(sizes) > 1:
            raise ValueError(f"found must have the same rows, got {sorted(sizes)} rows")
        shape = (sizes.pop(), len(parts))
        if index is not None or columns is not None or shape != (1, 1):
            index = pd.RangeIndex(shape[0]) if index is None else index
            columns = pd.RangeIndex(shape[1]) if columns is None else columns
            if (len(index), len(columns)) != shape:
                raise ValueError(
                    f"index and columns must have lengths {shape}, got {(len(index), len(columns))}"
                )
        self._parts = parts
        super().__init__(index=index, columns=columns)

    # What skpro calls; x and p have the shape of the distribution, () or (m, n_columns)

    def _mean(self) -> Any:
        return self._shaped([part.mean() for part in self._parts])

    def _var(self) -> Any:
        return self._shaped([part.var() for part in self._parts])

    def _pdf(self, x: Any) -> Any:
        return self._each("pdf", x)

    def _log_pdf(self, x: Any) -> Any:
        return self._each("log_prob", x)

    def _cdf(self, x: Any) -> Any:
        return self._each("cdf", x)

    def _ppf(self, p: Any) -> Any:
        levels = np.asarray(p, np.float64).reshape(-1, len(self._parts))
        return self._shaped(
            [_quantile(part, own) for part, own in zip(self._parts, levels.T, strict=True)]
        )

    def _energy_self(self) -> Any:
        """E|X - X'|, summed over columns."""
        return self._by_row(sum(2.0 * _half_energy(part) for part in self._parts))

    def _energy_x(self, x: Any) -> Any:
        """E|X - x|, summed over columns."""
        given = np.asarray(x, np.float64).reshape(-1, len(self._parts))
        both = zip(self._parts, given.T, strict=True)
        return self._by_row(sum(_distance(part, own) for part, own in both))

    def _sample(self, n_samples: int | None = None) -> Any:
        """Samples by numpy's global random state, as those of skpro's own distributions."""
        count = 1 if n_samples is None else n_samples
        drawn = [part.sample(count).T.reshape(-1) for part in self._parts]  # sample by sample
        if self.ndim == 0:
            return drawn[0][0] if n_samples is None else pd.DataFrame(drawn[0])
        index = self.index
        if n_samples is not None:
            index = pd.MultiIndex.from_product([range(count), self.index])
        return pd.DataFrame(np.column_stack(drawn), index=index, columns=self.columns)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> TrieDistribution:
        if rowidx is None or colidx is None:
            raise ValueError("iat requires a row and a column")
        return TrieDistribution([self._parts[colidx].select([rowidx])])

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> TrieDistribution:
        if np.ndim(rowidx) == 0 and np.ndim(colidx) == 0 and None not in (rowidx, colidx):
            return self._iat(rowidx, colidx)
        rows = np.arange(self.shape[0])
        rows = rows if rowidx is None else np.atleast_1d(rows[rowidx])
        places = np.arange(self.shape[1])
        places = places if colidx is None else np.atleast_1d(places[colidx])
        return TrieDistribution(
            [self._parts[k].select(rows) for k in places.tolist()],
            index=self.index[rows],
            columns=self.columns[places],
        )

    # Internal

    def _each(self, method: str, x: Any) -> Any:
        given = np.asarray(x, np.float64).reshape(-1, len(self._parts))
        both = zip(self._parts, given.T, strict=True)
        return self._shaped([getattr(part, method)(own) for part, own in both])

    def _shaped(self, columns: list[Floats]) -> Any:
        return columns[0][0] if self.ndim == 0 else np.column_stack(columns)

    def _by_row(self, values: Any) -> Any:
        return values[0] if self.ndim == 0 else values[:, None]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters by which skpro's checks make instances.

        Parameters
        ----------
        parameter_set : str, default="default"
            There is one set.
        """
        from triegp.models.transforms import Log

        rng = np.random.default_rng(0)
        weights = np.array([0.3, 0.7])
        mixtures = [
            PredictiveDistribution(weights, rng.normal(size=(2, 3)), rng.uniform(0.1, 1.0, (2, 3)))
            for _ in range(2)
        ]
        named = {"index": pd.Index([4, 2, 7]), "columns": pd.Index(["a", "b"])}
        transformed = TransformedDistribution(mixtures[1], Log(0.5))
        return [
            {"found": mixtures, **named},
            {"found": [mixtures[0], transformed], **named},
            {"found": [mixtures[0].select([1])]},
        ]


def _quantile(part: PredictiveDistribution | TransformedDistribution, levels: Floats) -> Floats:
    """Quantiles with a level per row, (m,): rows of the same level together.

    Levels 0 and 1 give the ends of the range of y, others outside of (0, 1) NaN.
    """
    out = np.full(levels.size, np.nan)
    for level in np.unique(levels[(levels > 0) & (levels < 1)]).tolist():
        rows = np.flatnonzero(levels == level)
        out[rows] = part.select(rows).quantile(level)
    for level, end in ((0.0, -np.inf), (1.0, np.inf)):
        if isinstance(part, TransformedDistribution):
            end = float(part.transform.inverse(np.array([end]))[0])
        out[levels == level] = end
    return out


def _distance(part: PredictiveDistribution | TransformedDistribution, x: Floats) -> Floats:
    """E|X - x| at each row, (m,)."""
    if isinstance(part, TransformedDistribution):
        return _half_energy(part) + crps(x, part, by_row=True)
    sd, gap = np.sqrt(part.variances), x - part.means
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        z = gap / sd
        found = gap * (2.0 * ndtr(z) - 1.0) + 2.0 * sd * np.exp(-0.5 * z * z) / ROOT_2PI
    return average(part.weights, np.where(sd > 0, found, np.abs(gap)))  # or a point mass


def _half_energy(part: PredictiveDistribution | TransformedDistribution) -> Floats:
    """E|X - X'| / 2 at each row, (m,): it is E|X - x| - CRPS(x) for any x.

    X of a transformed target is limited, as for its moments; with x at the upper limit, E|X - x| is
    x - E X. Infinite if the limit exceeds float64.
    """
    if isinstance(part, TransformedDistribution):
        x = part.transform.inverse(part.limits()[1])
        usable = np.isfinite(x)
        x = np.where(usable, x, 0.0)
        gap = x - np.where(usable, part.mean(), 0.0)
        return np.where(usable, gap - crps(x, part, by_row=True), np.inf)
    x = part.mean()
    return np.asarray(_distance(part, x) - crps(x, part, by_row=True))
