"""Single trees that are trained first, whose bit orders a forest may begin with.

A forest that begins with even orders learns from parts of about 500 rows. They tell little of
structure that only many rows show: features that matter within small cells of other features. Trees
that are trained one by one on many rows find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import Limits, condition_forest
from triegp.additive.fitted import FittedForest
from triegp.additive.settings import Settings
from triegp.additive.start import EncodedRows, Parameters
from triegp.encoding.encoder import BitEncoder
from triegp.engines import Engine
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import Settings as MixtureSettings
from triegp.mixture.settings import settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.interface import Fitted
from triegp.models.run import Run
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

N_SINGLES = 16
COMPARED_ROWS = 16_384  # that both models have when they are compared
ORDER_ROWS = 1 << 20  # rows that orders are learned from, at most


def single_settings() -> MixtureSettings:
    """Settings of the single trees."""
    found: MixtureSettings = settings_of("default", {"n_members": N_SINGLES})
    return found


def train_singles(encoders: Sequence[BitEncoder], rows: Rows, run: Run, engine: Engine) -> Ensemble:
    """Train 16 single trees on rows of one target, in at most a third of the time left."""
    watch = run.watch.within(run.watch.left() / 3) if run.watch.limited else run.watch

    def tell(stage: str, done: int, total: int) -> None:
        run.progress(f"initial {stage}", done, total)

    device = "cpu" if engine.on_host else "cuda"
    own = replace(run, watch=watch, progress=tell, engine=device, left_out=[])
    alone = replace(rows, y=rows.y[:, None])
    return cast(Ensemble, train_ensemble(encoders, alone, single_settings(), own).fitted)


def take_orders(
    singles: Ensemble, encoders: Sequence[BitEncoder], grids: Sequence[BitEncoder]
) -> tuple[tuple[BitEncoder, ...], tuple[Floats, ...]]:
    """Grids and phi from the single trees, assigned in turn, with the shifts of `grids`."""
    by_scaling = {encoder.scaling: encoder for encoder in encoders}
    chosen, phi = [], []
    for t, grid in enumerate(grids):
        own = singles.members[t % len(singles.members)]
        chosen.append(by_scaling[own.encoder.scaling].with_shift(grid.shift_))
        phi.append(own.order.phi)
    return tuple(chosen), tuple(phi)


def condition_some(
    data: EncodedRows,
    parameters: Parameters,
    settings: Settings,
    seed: int,
    host: Engine,
    seen: Ints,
    limits: Limits,
) -> FittedForest:
    """The forest conditioned on the first 16,384 of the rows `seen`; see `condition_forest`."""
    some = data.select(np.sort(seen[:COMPARED_ROWS]))
    model = condition_forest(some, parameters, settings, seed, host, limits=limits)
    return FittedForest(model, (), 0, diverged=False)


def better_orders(
    forest: FittedForest,
    encoders: Sequence[BitEncoder],
    grids: Sequence[BitEncoder],
    rows: Rows,
    seen: Ints,
    held: Ints,
    run: Run,
    host: Engine,
    engine: Engine,
) -> tuple[tuple[BitEncoder, ...], tuple[Floats, ...]] | None:
    """Grids and phi of single trees, if these predict better than the forest; otherwise None.

    They are compared by their squared errors at the held-out rows, given the same 16,384 rows. If
    they are better, orders are learned from all rows `seen`, at most a million. None if Ctrl-C
    stops this.

    Parameters
    ----------
    forest : FittedForest
        Result of `condition_some`.
    encoders, grids : sequences of BitEncoder
        Fitted, without shift; and one per tree of the forest.
    rows : Rows
        All rows, with their features.
    seen, held : int64
        Rows to learn from in a random order, and rows that are held out.
    run : Run
        Random numbers, threads, clock, progress.
    host, engine : Engine
        The comparison is made on the host; orders are learned on the engine.
    """
    unseen, wanted = rows.select(held), squared_error(forest, rows.select(held))
    for n_rows, where in ((COMPARED_ROWS, host), (ORDER_ROWS, engine)):
        singles = train_singles(encoders, rows.select(np.sort(seen[:n_rows])), run, where)
        if run.watch.stop:
            run.leave_out("the orders of single trees")
            return None
        if squared_error(singles, unseen) >= wanted:
            return None
    return take_orders(singles, encoders, grids)


def squared_error(fitted: Fitted, rows: Rows) -> float:
    """Mean squared error of a model's means at rows of one target, by their weights."""
    points = fitted.read(rows.features, var=False)
    mean = fitted.predict(points, 0, var=False, latent=True).mean()
    return float(np.average(np.square(rows.y - mean), weights=rows.weight))
