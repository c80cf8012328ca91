"""Settings of a mixture of trees, and its presets.

The default preset was chosen by its results on validation data (`docs/training.md`). The paper's
two presets reproduce its experiments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from triegp.checks import one_of, positive_number, whole_number
from triegp.encoding.scaling import SCALINGS
from triegp.tree.order import NUGGETS

OPTIMIZERS = ("lbfgs", "bfgs")
MIXTURES = ("calibrated", "stacking", "softmax", "best")
MANY_ROWS = 2_000_000  # with more, there are fewer members, and their messages are float32
LEAST_MEMBERS = 8  # however many rows there are
MOST_MEMBERS = 10_000  # grids are made for all of them, however short the time budget is


@dataclass(frozen=True)
class Settings:
    """All settings of a mixture; `BinaryTreeGPRegressor` documents those that users choose.

    Attributes
    ----------
    final_noise : float or None
        Noise floor of the trained members; None means 1 / n, as in the paper.
    last_weights : tuple of float or None
        Last weights of the candidates, which cycle through them; None means uniform weights.
    box_margin : float
        Added to the width of the box before features are scaled.
    by_parts : bool
        Whether orders are learned from parts of the rows, as far as more rows help.
    short : bool
        Whether messages of more than MANY_ROWS rows are float32.
    """

    n_members: int
    n_candidates: int
    scaling: str
    precision: Any
    shift: bool
    nugget: str
    noise: float
    final_noise: float | None
    learn_scale: bool
    optimizer: str
    max_iter: int
    tol: float
    mixture: str
    temperature: float
    last_weights: tuple[float | None, ...]
    box_margin: float
    by_parts: bool
    short: bool

    @property
    def n_grids(self) -> int:
        """Number of grids: one per member if grids are shifted, otherwise one in all."""
        return self.n_members if self.shift else 1

    @property
    def all_candidates(self) -> int:
        """Number of random orders over all grids."""
        return self.n_candidates * self.n_grids

    def floor(self, n_rows: float) -> float:
        """Noise floor of the trained members; n_rows is the sum of the sample weights."""
        return 1.0 / n_rows if self.final_noise is None else self.final_noise


PAPER_BTE = Settings(
    n_members=20,
    n_candidates=480,
    scaling="minmax",
    precision="paper",
    shift=False,
    nugget="row",
    noise=1e-5,
    final_noise=None,
    learn_scale=False,
    optimizer="bfgs",
    max_iter=1000,
    tol=1e-4,
    mixture="softmax",
    temperature=0.01,
    last_weights=(None, 0.5, 0.9),
    box_margin=1e-6,
    by_parts=False,
    short=False,
)

PRESETS = {
    "default": Settings(
        n_members=24,
        n_candidates=30,
        scaling="both",
        precision="auto",
        shift=True,
        nugget="row",
        noise=1e-5,
        final_noise=1e-5,
        learn_scale=True,
        optimizer="lbfgs",
        max_iter=200,
        tol=1e-3,
        mixture="calibrated",
        temperature=0.01,
        last_weights=(None, 0.5, 0.9),
        box_margin=0.0,
        by_parts=True,
        short=True,
    ),
    "paper-bte": PAPER_BTE,
    "paper-bt": replace(PAPER_BTE, mixture="best"),
}

TUNABLE = (
    "n_members",
    "n_candidates",
    "scaling",
    "precision",
    "shift",
    "nugget",
    "noise",
    "learn_scale",
    "optimizer",
    "max_iter",
    "tol",
    "mixture",
    "temperature",
)


def members_for(n_rows: int, usual: int) -> int:
    """Number of members for so many rows: fewer above MANY_ROWS, at least LEAST_MEMBERS.

    A member takes about 100 bytes per row, 70 above MANY_ROWS, so memory stops growing there for a
    while.
    """
    return min(usual, max(LEAST_MEMBERS, usual * MANY_ROWS // max(n_rows, 1)))


def settings_of(preset: Any, given: dict[str, Any]) -> Settings:
    """Settings of a preset with the given values, checked; None keeps the preset's value."""
    settings = PRESETS[one_of("preset", preset, tuple(PRESETS))]
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    if given.get("noise") is not None:
        settings = replace(settings, final_noise=settings.noise)
    one_of("scaling", settings.scaling, (*SCALINGS, "both"))
    one_of("nugget", settings.nugget, NUGGETS)
    one_of("optimizer", settings.optimizer, OPTIMIZERS)
    one_of("mixture", settings.mixture, MIXTURES)
    if settings.mixture in ("softmax", "best"):  # these compare the nll of all rows
        settings = replace(settings, by_parts=False)
    whole_number("n_members", settings.n_members, most=MOST_MEMBERS)
    for name in ("n_candidates", "max_iter"):
        whole_number(name, getattr(settings, name))
    for name in ("noise", "tol", "temperature"):
        positive_number(name, getattr(settings, name))
    for name in ("shift", "learn_scale"):
        value = getattr(settings, name)
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True, False or None, got {value!r:.80}")
    return settings
