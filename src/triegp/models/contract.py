"""What a trained model must answer, whatever it is made of: everything else is built on this.

All of it is in standardised units; `predictive` puts on those of y.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from triegp.models.distribution import Mixture
from triegp.models.rows import Rows

Floats = npt.NDArray[np.float64]
Data = npt.NDArray[Any]  # rows of features, as `real_array` gives them


class Fitted(Protocol):
    """A model trained on n rows for one or several targets; nothing changes it.

    X is always float (m, n_features), as `real_array` gives it, and `column` one of the targets,
    counted from 0.
    """

    @property
    def n_targets(self) -> int:
        """How many targets it predicts."""
        ...

    @property
    def n_rows(self) -> int:
        """How many rows it has seen."""
        ...

    def predict_mixture(self, X: Data, column: int, *, var: bool, latent: bool) -> Mixture:
        """Prediction at each of the rows; (K, m) numbers.

        Without `var` no work is done for variances, and they are 0. `latent` is the function
        itself, otherwise new observations of it, noise included.
        """
        ...

    def predict_covariance(self, X: Data, column: int, *, latent: bool) -> tuple[Floats, Floats]:
        """Mean (m,) and covariance (m, m) of the rows together."""
        ...

    def draw(
        self, X: Data, column: int, n_samples: int, rng: np.random.Generator, *, latent: bool
    ) -> Floats:
        """Samples of the rows together, (m, n_samples)."""
        ...

    def loo_mixture(self, column: int) -> Mixture:
        """Prediction of each training target given all other rows, noise included; (K, n)."""
        ...

    def observed(self, column: int) -> tuple[Floats, Floats | None]:
        """Training targets (n,) and their sample weights (n,), None where all are 1."""
        ...

    def log_evidence(self, column: int) -> float:
        """Log marginal likelihood of the training targets."""
        ...

    def check(self, X: Data, rows: Rows) -> None:
        """Raise ValueError for rows that `grow` could not add; they lie inside the box."""
        ...

    def grow(self, X: Data, rows: Rows) -> Self:
        """The model with more rows: the same parameters, conditioned on all rows."""
        ...


class Trained(NamedTuple):
    """What training gives.

    Attributes
    ----------
    fitted : Fitted
        The model.
    stopped : bool
        Whether the watch cut it short.
    n_evaluations : int
        Likelihoods with gradient that it took, also for parts that are not kept.
    """

    fitted: Fitted
    stopped: bool
    n_evaluations: int
