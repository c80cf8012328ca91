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

from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine
from triegp.mixture.members import Ensemble
from triegp.mixture.settings import Settings as MixtureSettings
from triegp.mixture.settings import settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.interface import Trained
from triegp.models.run import Run
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

N_SINGLES = 16


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
    """

    grids: tuple[Quantiser, ...]
    phi: tuple[Floats, ...]


def train_singles(encoders: Sequence[Quantiser], rows: Rows, run: Run, engine: Engine) -> Trained:
    """Train 16 single trees, in at most a third of the time left; targets share their orders."""
    watch = run.watch.within(run.watch.left() / 3) if run.watch.limited else run.watch

    def tell(stage: str, done: int, total: int) -> None:
        run.progress(f"initial {stage}", done, total)

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
    return Orders(tuple(chosen), tuple(phi))
