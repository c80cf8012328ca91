"""Single trees that are trained first, whose bit orders a forest may begin with.

A forest that begins with even orders learns from parts of about 500 rows. They tell little of
structure that only many rows show: features that matter within small cells of other features. Trees
that are trained one by one on many rows find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import Limits, condition_forest
from triegp.additive.fitted import FittedForest
from triegp.additive.model import column_of
from triegp.additive.settings import Settings
from triegp.additive.start import EncodedRows, Parameters
from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import Settings as MixtureSettings
from triegp.mixture.settings import settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.interface import Fitted, Trained
from triegp.models.run import Run
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NO_ORDERS = "the orders of single trees"
N_SINGLES = 16
COMPARED_ROWS = 16_384  # that both models have when they are compared
ORDER_ROWS = 1 << 20  # rows that orders are learned from, at most


def single_settings() -> MixtureSettings:
    """Settings of the single trees."""
    found: MixtureSettings = settings_of("default", {"n_members": N_SINGLES})
    return replace(found, by_parts=False)  # measured with all rows only


@dataclass(frozen=True, eq=False)
class Orders:
    """Bit orders of single trees, for the trees of a forest.

    Attributes
    ----------
    grids : tuple of Quantiser
        One per tree of the forest.
    phi : tuple of float64 (q,)
        Order and weights of each tree.
    n_evaluations : int
        Evaluations of the likelihood's gradient that they took.
    """

    grids: tuple[Quantiser, ...]
    phi: tuple[Floats, ...]
    n_evaluations: int


def train_singles(
    encoders: Sequence[Quantiser], rows: Rows, run: Run, engine: Engine, name: str = "initial"
) -> Trained:
    """Train 16 single trees, in at most a third of the time left; all targets share their orders.

    name: of the stage, for the progress.
    """
    watch = run.watch.within(run.watch.left() / 3) if run.watch.limited else run.watch

    def tell(stage: str, done: int, total: int) -> None:
        run.progress(f"{name} {stage}", done, total)

    device = "cpu" if engine.on_host else "cuda"
    own = replace(run, watch=watch, progress=tell, engine=device, left_out=[])
    alone = replace(rows, y=rows.y.reshape(rows.n_rows, -1))
    return train_ensemble(encoders, alone, single_settings(), own)


def take_orders(
    trained: Trained, encoders: Sequence[Quantiser], grids: Sequence[Quantiser]
) -> Orders:
    """Grids and phi from single trees, assigned in turn, with the shifts of `grids`."""
    members = cast(Ensemble, trained.fitted).members
    by_scaling = {encoder.scaling: encoder for encoder in encoders}
    chosen, phi = [], []
    for t, grid in enumerate(grids):
        own = members[t % len(members)]
        chosen.append(by_scaling[own.encoder.scaling].with_shift(grid.shift_))
        phi.append(own.order.phi)
    return Orders(tuple(chosen), tuple(phi), trained.n_evaluations)


def condition_some(
    data: EncodedRows,
    parameters: Parameters,
    settings: Settings,
    seed: int,
    host: Engine,
    seen: Ints,
    limits: Limits,
) -> FittedForest:
    """The forest conditioned on the first 16,384 of the rows `seen`, for its means alone."""
    some = data.select(np.sort(seen[:COMPARED_ROWS]))
    model = condition_forest(some, parameters, settings, seed, host, limits=limits, means=True)
    return FittedForest(model, (), 0, diverged=False)


def better_orders(
    forest: FittedForest,
    encoders: Sequence[Quantiser],
    grids: Sequence[Quantiser],
    rows: Rows,
    seen: Ints,
    held: Ints,
    run: Run,
    host: Engine,
    engine: Engine,
) -> Orders | None:
    """Orders of single trees, if these predict better than the forest; otherwise None.

    Single trees are trained on the 16,384 rows that the forest is conditioned on, and compared with
    it by the squared error at the held-out rows. If they are better, single trees are trained again
    on all rows `seen`, at most a million. None if Ctrl-C stops this.

    Parameters
    ----------
    forest : FittedForest
        Result of `condition_some`.
    encoders, grids : sequences of Quantiser
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
    few, unseen = rows.select(np.sort(seen[:COMPARED_ROWS])), rows.select(held)
    trained = train_singles(encoders, few, run, host, "compared")
    if not run.watch.stop:
        if squared_error(trained.fitted, unseen) >= squared_error(forest, unseen):
            return None
        many = rows.select(np.sort(seen[:ORDER_ROWS]))
        trained = train_singles(encoders, many, run, engine)
    if run.watch.stop:
        run.leave_out(NO_ORDERS)
        return None
    return take_orders(trained, encoders, grids)


def squared_error(fitted: Fitted, rows: Rows) -> float:
    """Mean squared error of a model's means, by the weights of the rows, summed over targets."""
    points = fitted.read(rows.features, var=False)
    total = 0.0
    for c in range(fitted.n_targets):
        mean = fitted.predict(points, c, var=False, latent=True).mean()
        error = column_of(rows.y, c) - mean
        total += float(np.average(np.square(error), weights=rows.weight))
    return total
