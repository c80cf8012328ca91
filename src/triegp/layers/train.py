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
from triegp.additive.walk import student_nll
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine
from triegp.layers.effects import fit_effects, no_effects, trust
from triegp.layers.layered import Below, Layered, rest_rows
from triegp.mixture.cells import Units
from triegp.mixture.members import Ensemble
from triegp.mixture.placing import place_ensemble
from triegp.mixture.settings import Settings as MixtureSettings
from triegp.mixture.settings import members_for, settings_of
from triegp.mixture.train import train_ensemble
from triegp.mixture.whole import Whole
from triegp.models.folds import FEW_ROWS, held_rows
from triegp.models.interface import Trained
from triegp.models.pieces import Piece
from triegp.models.repeats import find_inputs, hash_inputs
from triegp.models.run import Run
from triegp.tree.rows import Rows, join_rows

Floats = npt.NDArray[np.float64]

MOST_ROWS = 196_608  # of one process: beyond, solves take most of the time and gain little
BASE_ROWS = 131_072  # of the base, but for three quarters of all
N_NEARBY = 64  # of the base, whose variance only tells where there are few rows
COMPARED_ROWS, COMPARED_MEMBERS = 1 << 16, 8  # of mixtures that tell whether the base helps
USUAL_ROWS, USUAL_SHARE = 2_000, 0.99  # from which the usual variance of the base is read
GAIN_ROWS = 1 << 16  # that teach the gain of the base: to 0.04 if it explains 1 % of the variance
# With less time per row there is the rest alone, and a small base. A million rows took 25 of 30 s.
ROW_SECONDS, HURRIED_ROWS = 25e-6, 2_000
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

    Notes
    -----
    Where trees with many rows tell more than a base with some, as of delays of flights by route and
    day, subtracting the base would cost more than it brings. Two small mixtures tell, one with the
    base, and one without it but with twice the rows. Without it, the base says no more than where
    there are no rows.
    """
    source = rows if whole is None else _others(whole.sample, rows)
    rest_alone = source.n_rows < FEW_ROWS  # the lower layers would be learned from rows of the rest
    if rest_alone:
        source = rows
    n_base = min(BASE_ROWS, source.n_rows * 3 // 4)
    n_all = rows.n_rows if whole is None else whole.n_rows
    if run.watch.limited and run.watch.left() < ROW_SECONDS * n_all:
        rest_alone, n_base = True, min(HURRIED_ROWS, n_base)
        run.leave_out("main effects and the mean of trees with a smooth part")
    judged = held_rows(source.n_rows)
    n_learned = source.n_rows - judged.size
    chosen, after = source.select(slice(n_base)), source.select(slice(n_base, n_learned))
    effects = no_effects(source.n_targets)
    if not rest_alone:
        effects = fit_effects(source.select(slice(n_learned)))
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
    some = after.features[:USUAL_ROWS]
    var = base.predict(base.read(some, var=True), 0, var=True, latent=True).var()
    bound, usual = np.abs(source.y).max(axis=0), float(np.quantile(var, USUAL_SHARE))
    below = Below(effects, base, np.ones(bound.size), bound, usual)
    below = replace(below, gain=_find_gain(below, after))
    n_evaluations = trained.n_evaluations
    if not rest_alone and not run.watch.stop:
        judge = source.select(judged)
        part, two = after.select(slice(COMPARED_ROWS)), slice(max(n_base - COMPARED_ROWS, 0), None)
        both = join_rows([chosen.select(two), part])
        with_base = _score(encoders, _less(part, below), _less(judge, below), run)
        rest_alone = _score(encoders, both, judge, run) < with_base and not run.watch.stop
    if run.watch.stop:
        run.leave_out("the test whether a base helps")
    if rest_alone:
        below = replace(below, effects=no_effects(bound.size), gain=np.zeros(bound.size))
    if not below.gain.any():
        n_base = 0  # all rows are the rest's
    others = rows if whole is not None else rows.select(slice(n_base, None))
    means = below.mean_at(others.features)
    left = np.sqrt(np.average(np.square(others.y - means), axis=0, weights=trust(others)))
    scale = np.maximum(left, LEAST_SCALE)
    if whole is not None:
        whole = _whole_rest(whole, below, scale, chosen.select(slice(n_base)))
    n_rows = others.n_rows if whole is None else whole.n_rows
    mixed = train_ensemble(encoders, rest_rows(others, means, scale), _mixture(n_rows), run, whole)
    rest = cast(Ensemble, mixed.fitted)
    if not rest.on_host:
        rest = place_ensemble(rest, CpuEngine(n_threads=run.n_threads))
    if whole is None:
        means = np.concatenate([known[:n_base], means])
    fitted = Layered(below, rest, scale, means)
    residuals = None
    if settings.calibrated and mixed.residuals is not None:
        pairs = enumerate(mixed.residuals)
        residuals = tuple(fitted.place_residuals(part, column) for column, part in pairs)
    stopped = trained.stopped or mixed.stopped
    n_evaluations += mixed.n_evaluations
    return Trained(fitted, stopped, n_evaluations, residuals, trained.curve)


def _mixture(n_rows: int) -> MixtureSettings:
    """Settings of the rest."""
    found = settings_of("default", {})
    return replace(found, n_members=members_for(n_rows, found.n_members))


def _less(rows: Rows, below: Below) -> Rows:
    """Rows less the mean of the layers below."""
    return replace(rows, y=rows.y - below.mean_at(rows.features))


def _score(encoders: Sequence[Quantiser], rows: Rows, judge: Rows, run: Run) -> float:
    """Nll per row of judging rows by a small mixture of trees, at its best scale.

    By a Student distribution: outliers must not decide, as error bars will have tails.
    """
    mixture = replace(_mixture(rows.n_rows), n_members=COMPARED_MEMBERS)
    scale = np.maximum(rows.y.std(axis=0), LEAST_SCALE)
    own = replace(run, progress=_named(run, "compared"), left_out=[], engine="cpu")
    fitted = train_ensemble(encoders, rest_rows(rows, 0.0, scale), mixture, own).fitted
    points, total = fitted.read(judge.features, var=False), 0.0
    for c, unit in enumerate(scale):
        mean = fitted.predict(points, c, var=False, latent=True).mean()
        total += student_nll(judge.y[:, c] - unit * mean)
    return total


def _find_gain(below: Below, rows: Rows) -> Floats:
    """Factor of the base's mean with the least squared error at rows that it has not seen, (k,)."""
    some = rows.select(slice(GAIN_ROWS))
    effects = below.effects.at(some.features)
    base, left = below.mean_at(some.features) - effects, some.y - effects
    weight = trust(some)[:, None]
    square = (weight * np.square(base)).sum(axis=0)
    best = (weight * base * left).sum(axis=0) / np.maximum(square, 1e-300)
    return np.asarray(np.clip(best, 0.0, 1.0))


def _others(sample: Rows, held: Rows) -> Rows:
    """Rows of the sample that are not among those that the mixture holds."""
    known = np.sort(hash_inputs(held.features))
    return sample.select(np.flatnonzero(find_inputs(known, sample.features) < 0))


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
    return replace(
        whole,
        read=read,
        sample=read.convert(whole.sample),
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
        return self.convert(self.read(piece))

    def convert(self, rows: Rows) -> Rows:
        """Rows that are not those of the base, less the mean of the layers below."""
        if self.inputs.size:
            rows = rows.select(np.flatnonzero(find_inputs(self.inputs, rows.features) < 0))
        return rest_rows(rows, self.below.mean_at(rows.features), self.scale)


def _named(run: Run, name: str) -> Callable[[str, int, int], None]:
    """Progress whose stages have a name before theirs."""

    def tell(stage: str, done: int, total: int) -> Any:
        run.progress(f"{name} {stage}", done, total)

    return tell
