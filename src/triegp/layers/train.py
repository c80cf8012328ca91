"""Training of the layers, each on rows that those below it have not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from triegp.additive.fitted import FittedForest
from triegp.additive.settings import Settings
from triegp.additive.train import train_forest
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine
from triegp.layers.effects import fit_effects
from triegp.layers.layered import Below, Layered, rest_rows
from triegp.mixture.cells import Units
from triegp.mixture.members import Ensemble
from triegp.mixture.placing import place_ensemble
from triegp.mixture.settings import members_for, settings_of
from triegp.mixture.train import train_ensemble
from triegp.mixture.whole import Whole
from triegp.models.folds import held_rows
from triegp.models.interface import Trained
from triegp.models.pieces import Piece
from triegp.models.repeats import find_inputs, hash_inputs
from triegp.models.run import Run
from triegp.tree.rows import Rows

Floats = npt.NDArray[np.float64]

MOST_ROWS = 196_608  # of one process: beyond, solves take most of the time and gain little
BASE_ROWS = 131_072  # of the base, but for three quarters of all
N_NEARBY = 64  # of the base, whose variance only tells where there are few rows
USUAL_ROWS, USUAL_SHARE = 2_000, 0.99  # from which the usual variance of the base is read
GAIN_ROWS = 1 << 16  # from which the gain of the base is learned: to 0.01 for 1 % of the variance
LEAST_SCALE = 1e-9  # of what the layers below leave, relative to the deviation of y


def train_layered(
    encoders: Sequence[Quantiser],
    rows: Rows,
    settings: Settings,
    run: Run,
    whole: Whole | None = None,
) -> Trained:
    """Train main effects, a base on some of the rows, and a mixture on all others.

    Parameters
    ----------
    encoders : sequence of Quantiser
        Fitted, without shift; for the trees of both layers.
    rows : Rows
        Standardised targets, y (n, k), with their features, in the order of hashes.
    settings : Settings
        How to train the base.
    run : Run
        Random numbers, threads, clock, progress, engine. The base has half of a time budget.
    whole : Whole, optional
        All rows, if `rows` are only some of them: those that the mixture holds. The base is then
        conditioned on others of `whole.sample`.
    """
    source = rows if whole is None else _others(whole.sample, rows)
    n_base = min(BASE_ROWS, source.n_rows * 3 // 4)
    n_judged = held_rows(source.n_rows).size if whole is None else 0
    effects = fit_effects(source.select(slice(source.n_rows - n_judged)))
    chosen = source.select(slice(n_base))
    known = effects.at(chosen.features)
    first = replace(run, progress=_named(run, "base"))
    if run.watch.limited:
        first = replace(first, watch=run.watch.within(run.watch.left() / 2))
    trained = train_forest(
        encoders,
        replace(chosen, y=chosen.y - known),
        replace(settings, calibrated=False, n_nearby=N_NEARBY),
        first,
    )
    base = cast(FittedForest, trained.fitted).stand(apart=False)
    bound = np.abs(source.y).max(axis=0)
    some = source.features[n_base : n_base + USUAL_ROWS]
    var = base.predict(base.read(some, var=True), 0, var=True, latent=True).var()
    others = rows if whole is not None else rows.select(slice(n_base, None))
    below = Below(effects, base, np.ones(bound.size), bound, float(np.quantile(var, USUAL_SHARE)))
    below = replace(below, gain=_find_gain(below, others))
    means = below.mean_at(others.features)
    left = np.sqrt(np.average(np.square(others.y - means), axis=0, weights=others.weight))
    scale = np.maximum(left, LEAST_SCALE)
    mixture = settings_of("default", {})
    n_rows = others.n_rows if whole is None else whole.n_rows
    mixture = replace(mixture, n_members=members_for(n_rows, mixture.n_members))
    if whole is not None:
        whole = _whole_rest(whole, below, scale, chosen)
    mixed = train_ensemble(encoders, rest_rows(others, means, scale), mixture, run, whole)
    rest = cast(Ensemble, mixed.fitted)
    if not rest.on_host:
        rest = place_ensemble(rest, CpuEngine(n_threads=run.n_threads))
    known = means if whole is not None else np.concatenate([known, means])
    fitted = Layered(below, rest, scale, known)
    residuals = None
    if settings.calibrated and mixed.residuals is not None:
        pairs = enumerate(mixed.residuals)
        residuals = tuple(fitted.place_residuals(part, column) for column, part in pairs)
    stopped, n_evaluations = trained.stopped or mixed.stopped, trained.n_evaluations
    return Trained(fitted, stopped, n_evaluations + mixed.n_evaluations, residuals, trained.curve)


def _find_gain(below: Below, rows: Rows) -> Floats:
    """Factor of the base's mean with the least squared error at rows that it has not seen, (k,)."""
    some = rows.select(slice(GAIN_ROWS))
    effects = below.effects.at(some.features)
    base, left = below.mean_at(some.features) - effects, some.y - effects
    weight = np.ones((some.n_rows, 1)) if some.weight is None else some.weight[:, None]
    square = (weight * np.square(base)).sum(axis=0)
    best = (weight * base * left).sum(axis=0) / np.maximum(square, 1e-300)
    return np.asarray(np.clip(best, 0.0, 1.0))


def _others(sample: Rows, held: Rows) -> Rows:
    """Rows of the sample that are not among those that the mixture holds."""
    known = np.sort(hash_inputs(held.features))
    others = np.flatnonzero(find_inputs(known, sample.features) < 0)
    return sample.select(others if others.size > 1 else np.arange(sample.n_rows))


def _whole_rest(whole: Whole, below: Below, scale: Floats, chosen: Rows) -> Whole:
    """All rows but those of the base, less the mean of the layers below."""
    read = RestReader(whole.read, below, scale, np.sort(hash_inputs(chosen.features)))
    units, most = whole.units, 1.0 if whole.units.weight is None else whole.units.weight
    pairs = list(zip(units.target, units.square, below.bound, scale, strict=True))
    target = tuple((size + most * bound) / unit for size, _, bound, unit in pairs)
    square = tuple(
        float(np.square((np.sqrt(size) + np.sqrt(most) * bound) / unit))
        for _, size, bound, unit in pairs
    )
    learned = whole.sample
    learned = rest_rows(learned, below.mean_at(learned.features), scale)
    inside = find_inputs(read.inputs, learned.features) < 0
    return replace(
        whole,
        read=read,
        sample=learned.select(np.flatnonzero(inside)),
        units=Units(target, square, units.weight),
    )


@dataclass(frozen=True, eq=False)
class RestReader:
    """Reads pieces as the rest has them: without the rows of the base. Picklable.

    Attributes
    ----------
    read : callable (Piece) -> Rows
        Rows of a piece with standardised targets.
    below : Below
        The layers below.
    scale : float64 (k,)
        Units of the rest.
    inputs : uint64 (b,)
        Sorted hashes of the rows of the base.
    """

    read: Callable[[Piece], Rows]
    below: Below
    scale: Floats
    inputs: npt.NDArray[np.uint64]

    def __call__(self, piece: Piece) -> Rows:
        """Rows of a piece, less the mean of the layers below."""
        rows = self.read(piece)
        new = np.flatnonzero(find_inputs(self.inputs, rows.features) < 0)
        rows = rows.select(new)
        return rest_rows(rows, self.below.mean_at(rows.features), self.scale)


def _named(run: Run, name: str) -> Callable[[str, int, int], None]:
    """Progress whose stages have a name before theirs."""

    def tell(stage: str, done: int, total: int) -> Any:
        run.progress(f"{name} {stage}", done, total)

    return tell
