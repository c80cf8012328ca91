"""Settings of a sum of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triegp.checks import boolean, one_of, positive_number, whole_number
from triegp.encoding.scaling import SCALINGS

INITS = ("even", "random", "trained")
VARIANCES = ("auto", "exact", "samples", "cheap")


@dataclass(frozen=True)
class Settings:
    """All settings of a sum of trees; `TrieGPRegressor` documents those that users choose.

    Attributes
    ----------
    n_probes : int
        Random probes per step, which estimate the traces in the gradient.
    rate, tree_rate : float
        Step size of Adam for shared directions, and for the individual phi of each tree.
    rank : int
        Rank of the preconditioner during training.
    renew_every : int
        Number of steps after which the preconditioner is computed again.
    check_every : int
        Number of steps after which the likelihood is evaluated.
    solve_tol : float
        Relative residual at which the solves of a step end.
    """

    n_trees: int = 64
    init: str = "even"
    slope: float = 1.5
    scaling: str = "both"
    precision: Any = 8
    max_iter: int = 40
    train_rows: int = 5_000
    variance: str = "auto"
    variance_error: float = 0.2
    calibrated: bool = True
    n_probes: int = 7
    rate: float = 0.1
    tree_rate: float = 0.02
    rank: int = 200
    renew_every: int = 8
    check_every: int = 50
    solve_tol: float = 1e-2

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """(largest number of rows, number of steps) of each training stage."""
        return (self.train_rows, self.max_iter), (4 * self.train_rows, -(-self.max_iter // 4))


def check_settings(settings: Settings) -> Settings:
    """Return the settings; raises ValueError if one is invalid."""
    one_of("init", settings.init, INITS)
    one_of("scaling", settings.scaling, (*SCALINGS, "both"))
    one_of("variance", settings.variance, VARIANCES)
    boolean("calibrated", settings.calibrated)
    whole_number("n_trees", settings.n_trees)
    whole_number("train_rows", settings.train_rows)
    whole_number("max_iter", settings.max_iter, 0)
    positive_number("slope", settings.slope)
    check_variance_error(settings.variance_error)
    return settings


def check_variance_error(error: Any) -> float:
    """Return the error as a float; raises ValueError unless 0.001 <= error < 1."""
    number = positive_number("variance_error", error)
    if not 0.001 <= number < 1:
        raise ValueError(f"variance_error must lie between 0.001 and 1, got {number}")
    return number
