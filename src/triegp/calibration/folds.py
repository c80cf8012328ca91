"""Cross-fitting for few rows: how much better training rows are predicted than new ones.

Parameters that saw a row predict it too well, even if the row itself is left out. With many rows
per parameter that is negligible. With few rows, some small models are trained on a part of the rows
each and asked about the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from triegp.models.interface import Trained
from triegp.models.run import Run, silent
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Variant = TypeVar("Variant")

N_FOLDS = 4
MOST_ROWS = 1_000  # from this many rows on, nothing is cross-fitted
FEWEST_ROWS = 6  # with fewer, a fold is too small to train on
LARGEST_SQUARE = 25.0  # of a standardised residual: one outlier must not decide
MOST_OPTIMISM = 9.0  # largest ratio of squared residuals


class CrossFit(NamedTuple):
    """The variant that predicts held-out rows best, and the optimism of its leave-one-out.

    optimism: ratio of the mean squared standardised residuals of held-out rows and of training rows
    that are left out, at least 1; one per target.
    """

    best: int
    optimism: tuple[float, ...]


def cross_fit(
    train: Callable[[Variant, Rows, Run], Trained],
    variants: Sequence[Variant],
    rows: Rows,
    run: Run,
) -> CrossFit:
    """Train every variant on three quarters of the rows, four times, and predict the rest.

    Parameters
    ----------
    train : callable (variant, rows, run) -> Trained
        Trains a model with residuals.
    variants : sequence
        Settings to choose from.
    rows : Rows
        Standardised targets, y (n, k), with their features.
    run : Run
        Random numbers, threads and clock. If the clock stops, the rest is left out.
    """
    nothing = CrossFit(0, (1.0,) * rows.n_targets)
    if not FEWEST_ROWS <= rows.n_rows < MOST_ROWS:
        return nothing
    run = replace(run, rng=run.rng.spawn(1)[0])  # what follows does not depend on the variants
    parts = np.array_split(run.rng.permutation(rows.n_rows), min(N_FOLDS, rows.n_rows // 2))
    found = []
    for variant in variants:
        new: list[list[Floats]] = [[] for _ in range(rows.n_targets)]
        old: list[list[Floats]] = [[] for _ in range(rows.n_targets)]
        for part in parts:
            if run.watch.stop:
                return nothing
            rest = np.sort(np.concatenate([p for p in parts if p is not part]))
            quiet = replace(run, progress=silent, engine="cpu")
            trained = train(variant, rows.select(rest), quiet)
            assert trained.residuals is not None
            held = rows.select(np.sort(part))
            points = trained.fitted.read(held.features, var=True)
            for j in range(rows.n_targets):
                told = trained.fitted.predict(points, j, var=True, latent=False)
                new[j].append(_squares(held.y[:, j] - told.mean(), told.var()))
                left = trained.residuals[j]
                old[j].append(_squares(left.y - left.mean, left.var))
        found.append(([np.hstack(p) for p in new], [np.hstack(p) for p in old]))
    losses = [sum(_loss(part) for part in new) for new, _ in found]
    best = int(np.argmin(losses))
    new_parts, old_parts = found[best]
    optimism = tuple(
        float(np.clip(_size(a) / max(_size(b), 1e-12), 1.0, MOST_OPTIMISM))
        for a, b in zip(new_parts, old_parts, strict=True)
    )
    return CrossFit(best, optimism)


def _squares(error: Floats, var: Floats) -> Floats:
    """Squared standardised residuals and logarithms of the variances, (2, m)."""
    return np.stack([np.square(error) / var, np.log(var)])


def _size(parts: Floats) -> float:
    """Mean squared standardised residual, large ones cut off."""
    return float(np.minimum(parts[0], LARGEST_SQUARE).mean())


def _loss(parts: Floats) -> float:
    """Twice the nll per row of Gaussians at their best common scale, up to a constant."""
    return float(parts[1].mean() + np.log(max(_size(parts), 1e-12)))
