"""What calibration learns for one target, and how it is learned from residuals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from triegp.calibration.local import (
    LINE_FEWEST,
    MOST_ROWS,
    TREES_FEWEST,
    Kind,
    LearnedFrom,
    LocalNoise,
    cross_local,
    train_local,
)
from triegp.calibration.tails import GAUSSIAN, Tails, learn_shape, learn_tails, log_densities
from triegp.calibration.trend import Trend
from triegp.devices import like
from triegp.imports import scipy
from triegp.models.folds import halve_folds
from triegp.models.interface import Residuals
from triegp.models.repeats import NO_OTHERS, Others
from triegp.models.run import Run

Floats = npt.NDArray[np.float64]

SLOPES = np.arange(0.0, 3.01, 0.25)  # of the local logarithms, which regress to the mean
SLOPE_ROWS = 5_000  # rows from which the slope is chosen
LOUD_SHARES, LOUD_ROWS = (0.5, 0.25, 0.75), 200  # of rows with tails of their own, and fewest
LOUD_AGAIN = 1_000  # fresh rows, for both kinds of tails to be learned again
# Parts of the rows, each judged by tails of the others; from so many rows on it makes no difference
# worth the time: 0.002 nats per row with 2,000 rows, 0.0004 with 8,000.
PARTS, PART_ROWS = 4, 5_000
TURNS = 2  # of choosing the slope and the trust of repeats
CONSTANT = 1e-6  # standardised targets that are all smaller are constant
FEWEST_REPEATS = 30  # repeated observations, for a calibration of their own
TRUSTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)  # in an observation's square, against the predicted one
LEAST_GAIN = 3.0  # nats in all, for local noise to be used
CEILING = 0.95  # share of the rows with a smaller predicted variance than the ceiling
LEAST_SHARE = 0.01  # of a component that counts where kinds of tails are compared
LEVEL_STEP = 0.05
LEVELS = np.arange(-0.5, 2.51, LEVEL_STEP)  # log variances of rows that training has not seen
USUAL_GROWTH, USUAL_SPREAD = 0.08, 0.08  # the usual one, measured at 1,000 to 2,000 rows


@dataclass(frozen=True, eq=False)
class Repeats:
    """Calibration of observations at inputs that were observed before.

    Learned only if observations at the same input differ. Whoever repeats an input may repeat its
    target more often, or more closely, than the noise elsewhere says. The noise may also differ
    from input to input. With c earlier observations y_j there, an observation has the variance

        scale (v exp(slope g) + trust sum_j (y_j - mean)^2) / (1 + trust c)

    with mean and v those of the model and g the local logarithm. This is the estimate of a noise
    variance of which v exp(slope g) is known before, as surely as by 1 / trust observations.

    Attributes
    ----------
    scale : float
        Factor of variances, as in `Stage`.
    tails : Tails
        Distribution of standardised residuals.
    slope : float
        Factor of g, which need not be that of new inputs.
    trust : float
        Weight of the squared residual of one earlier observation.
    seen : Others
        The observations at each training input, in the order of the inputs' hashes.
    """

    scale: float
    tails: Tails
    slope: float = 0.0
    trust: float = 0.0
    seen: Others = NO_OTHERS


@dataclass(frozen=True, eq=False)
class Loud:
    """Tails of their own where noise is large: noise of another size may have another shape.

    Attributes
    ----------
    above : float
        Local logarithms from which on these tails are used.
    tails : Tails
        Distribution of standardised residuals there.
    """

    above: float
    tails: Tails


@dataclass(frozen=True, eq=False)
class Stage:
    """Calibration of one target.

    An observation at x has the predicted mean and variance v(x) scale exp(slope g(x)), with g the
    local logarithm, and tails around that.

    Attributes
    ----------
    scale : float
        Factor of all variances.
    tails : Tails
        Distribution of standardised residuals.
    local : LocalNoise or None
        The mixture that predicts g; None if noise is the same everywhere.
    slope : float
        Factor of g; 0 without `local`.
    logs : float64 (n,)
        g at each row of the model, without the row itself; zeros without `local`.
    repeats : Repeats or None
        Calibration of new observations at training inputs; None if they are as anywhere.
    trend : Trend or None
        A line that is averaged with the mean of the model; None if there are many rows.
    loud : Loud or None
        Tails where the local logarithm is large; None if they are the same everywhere.
    optimism : float
        By how much the mean log density of left-out training rows exceeds that of new rows, because
        parameters, scale and tails were learned from them.
    ceiling : float
        Predicted variance that few of the rows exceeded that the calibration was learned from.
    """

    scale: float
    tails: Tails
    local: LocalNoise | None
    slope: float
    logs: Floats
    repeats: Repeats | None = None
    trend: Trend | None = None
    loud: Loud | None = None
    optimism: float = 0.0
    ceiling: float = np.inf

    def factors(self, logs: Floats, var: Floats) -> Floats:
        """Factor of predicted variances (m,) at new inputs with these local logarithms.

        What a variance has above the ceiling is not reduced: nothing was learned there.
        """
        factor = self.scale * np.exp(self.slope * logs)
        beyond = np.maximum(1.0 - self.ceiling / var, 0.0)
        held: Floats = factor + np.maximum(1.0 - factor, 0.0) * beyond
        return held

    @property
    def kinds(self) -> tuple[Tails, ...]:
        """Tails of the kinds of rows that `find_kinds` tells apart."""
        loud = self.tails if self.loud is None else self.loud.tails
        return (self.tails, loud, self.tails if self.repeats is None else self.repeats.tails)

    def find_kinds(self, logs: Floats, repeated: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The kind of each row, (m,): 0, 1 where noise is large, 2 at inputs that repeat."""
        kinds: npt.NDArray[np.int64] = np.zeros_like(logs, dtype=np.int64)
        if self.loud is not None:
            kinds[logs >= self.loud.above] = 1
        if self.repeats is not None:
            kinds[like(repeated, logs)] = 2
        return kinds


def learn_repeats(stage: Stage, residuals: Residuals, others: Others) -> tuple[Stage, float]:
    """The stage with a calibration of repeated observations, and their log density under it.

    residuals: each predicted from all other observations, those at its own input included. others:
    those at its own input. Nothing is learned from fewer than 30; the log density is then 0.
    """
    if residuals.rows.size < FEWEST_REPEATS:
        return stage, 0.0
    logs = stage.logs[residuals.rows]
    slope, trust = _choose_trust(residuals, logs, others)
    plain = Repeats(1.0, GAUSSIAN, slope, trust)
    shift = np.log(
        residuals.var * repeat_factors(plain, logs, residuals.mean, residuals.var, others)
    )
    error = residuals.y - residuals.mean
    scale, tails, density = _judge(error, shift, residuals.weight, skewed=True)
    return replace(stage, repeats=replace(plain, scale=scale, tails=tails)), density


def repeat_factors(
    repeats: Repeats, logs: Floats, mean: Floats, var: Floats, others: Others
) -> Floats:
    """Factor of the variance of each observation, (m,).

    logs, mean, var: local logarithms and predictions at the observations, (m,). others: the
    earlier observations at the same inputs.
    """
    local = np.exp(repeats.slope * logs)
    squares = repeats.trust * others.squares(mean) / var
    return repeats.scale * (local + squares) / (1.0 + repeats.trust * others.count)


def _choose_trust(residuals: Residuals, logs: Floats, others: Others) -> tuple[float, float]:
    """Slope and trust of highest density, by turns; both 0 unless they gain 3 nats."""
    n = residuals.rows.size
    some = np.linspace(0, n - 1, min(n, SLOPE_ROWS)).astype(np.int64)
    mean, var, own = residuals.mean[some], residuals.var[some], others.select(some)
    error, count = residuals.y[some] - mean, residuals.weight
    count = None if count is None else count[some]

    def density(slope: float, trust: float) -> float:
        one = Repeats(1.0, GAUSSIAN, slope, trust)
        shift = np.log(var * repeat_factors(one, logs[some], mean, var, own))
        return _judge(error, shift, count)[2]

    slope = trust = 0.0
    plain = best = density(0.0, 0.0)
    slopes = SLOPES.tolist() if logs.any() else [0.0]
    for _ in range(TURNS):
        _, slope = max((density(one, trust), one) for one in slopes)
        best, trust = max((density(slope, one), one) for one in TRUSTS)
    return (slope, trust) if (best - plain) * some.size > LEAST_GAIN else (0.0, 0.0)


def _judge(
    error: Floats, shift: Floats, weight: Floats | None, *, skewed: bool = False
) -> tuple[float, Tails, float]:
    """Scale and tails of residuals whose log variances are known up to a factor; mean density.

    skewed: whether tails may be skewed, which takes longer.
    """
    spread = error * np.exp(-0.5 * shift)
    scale = _scale(spread, weight)
    score = spread / np.sqrt(scale)
    tails = _tails(score, weight) if skewed else learn_tails(score, weight)
    density = log_densities(tails, score) - 0.5 * (shift + np.log(scale))
    return scale, tails, float(np.average(density, weights=weight))


def learn_stage(
    X: npt.NDArray[np.floating],
    residuals: Residuals,
    run: Run,
    *,
    local: bool = True,
    by_var: bool,
    seen: Residuals | None = None,
) -> Stage:
    """Learn scale, tails and, if wanted, local noise from residuals.

    Parameters
    ----------
    X : float (n, d)
        Features of the model's rows.
    residuals : Residuals
        Predictions of some of the rows without themselves.
    run : Run
        Random numbers and threads for the local noise.
    local : bool, default=True
        Whether local noise is learned.
    by_var : bool
        Whether the local noise may depend on the predicted variance.
    seen : Residuals, optional
        The same rows, predicted by a model whose parameters have seen all of them, if no parameters
        of `residuals` have.
    """
    rows, y, mean, var = residuals.rows, residuals.y, residuals.mean, residuals.var
    if not np.any(np.abs(y) > CONSTANT):  # the deviation of y is all that is known
        return Stage(1.0 / float(var.mean()), GAUSSIAN, None, 0.0, np.zeros(X.shape[0]))
    score, weight = (y - mean) / np.sqrt(var), residuals.weight
    fresh = residuals.fresh if residuals.fresh.any() else np.ones(rows.size, bool)
    found, slope, logs = None, 0.0, np.zeros(X.shape[0])
    if local and rows.size >= LINE_FEWEST and run.watch.stop:
        run.leave_out("local noise")
    elif local and rows.size >= LINE_FEWEST:
        found, slope, logs = _choose_local(X, residuals, fresh, run, by_var)
    at, base = logs[rows], np.ones(rows.size, bool) if fresh.all() else ~fresh
    spread = score * np.exp(-0.5 * slope * at)
    count = np.ones(rows.size) if weight is None else weight
    own = (spread[base], at[base], None if weight is None else weight[base])
    plain = Stage(1.0, GAUSSIAN, found, slope, logs, ceiling=_quantile(var, weight, CEILING))
    stage = _learn_shapes(plain, *own)
    scale, spread = stage.scale, spread / np.sqrt(stage.scale)
    tuned = _tuning(stage, *own, PARTS * rows[base] // X.shape[0])
    gain = np.where(base, tuned, 0.0)
    if seen is not None:
        better = (seen.y - seen.mean) / np.sqrt(seen.var * scale * np.exp(slope * at))
        gain += _densities(stage, better, at) - _densities(stage, spread, at)
        gain -= 0.5 * np.log(seen.var / var)
    elif not fresh.all():
        growth = _learn_growth(stage, spread[fresh], at[fresh], count[fresh])
        smaller = _densities(stage, spread * np.exp(-0.5 * growth), at)
        gain += np.where(fresh, 0.0, smaller - _densities(stage, spread, at))
        stage = replace(stage, scale=scale * float(np.exp(growth)))
    return replace(stage, optimism=max(float(np.average(gain, weights=count)), 0.0))


def _learn_shapes(
    stage: Stage, spread: Floats, logs: Floats, weight: Floats | None, *, plain: bool = False
) -> Stage:
    """The stage with the scale and the tails of residuals that local noise has made alike.

    plain: whether tails must be symmetric, and the same everywhere.
    """
    scale = _scale(spread, weight)
    spread = spread / np.sqrt(scale)
    if plain:
        return replace(stage, scale=scale, tails=learn_tails(spread, weight), loud=None)
    found = replace(stage, scale=scale, tails=_tails(spread, weight), loud=None)
    return found if stage.local is None else _learn_loud(found, spread, logs, weight)


def _tuning(
    stage: Stage, spread: Floats, logs: Floats, weight: Floats | None, part: npt.NDArray[np.int64]
) -> float:
    """What the mean log density gains as scale and tails were learned from the same rows.

    By how much it exceeds that of each part of the rows under scale and tails of the others; 0 for
    many rows.
    """
    if part.size >= PART_ROWS or not np.ptp(part):
        return 0.0

    def density(judge: Stage, some: npt.NDArray[np.bool_]) -> Floats:
        scaled = _densities(judge, spread[some] / np.sqrt(judge.scale), logs[some])
        return np.asarray(scaled - 0.5 * np.log(judge.scale))

    plain = stage.loud is None and not stage.tails.offset.any()
    gain = density(stage, np.ones(part.size, bool))
    for number in np.unique(part):
        rest = part != number
        others = None if weight is None else weight[rest]
        own = _learn_shapes(stage, spread[rest], logs[rest], others, plain=plain)
        gain[~rest] -= density(own, ~rest)
    return float(np.average(gain, weights=weight))


def _choose_local(
    X: npt.NDArray[np.floating],
    residuals: Residuals,
    fresh: npt.NDArray[np.bool_],
    run: Run,
    by_var: bool,
) -> tuple[LocalNoise | None, float, Floats]:
    """Local noise by a line, or by trees beside it, its slope, and its logarithms at all rows.

    None, 0 and zeros unless the density of the fresh rows gains 3 nats.
    """
    rows, mean, var, y = residuals.rows, residuals.mean, residuals.var, residuals.y
    score, half = (y - mean) / np.sqrt(var), halve_folds(X.shape[0])[rows]
    weight = None if residuals.weight is None else residuals.weight[fresh]
    if half.all() or not half.any():  # all observations at one input
        return None, 0.0, np.zeros(X.shape[0])
    features = X if np.array_equal(rows, np.arange(X.shape[0])) else X[rows]
    learned = LearnedFrom(features, mean, var, y)
    kinds = [Kind(trees=False, by_mean=True, by_var=by_var)]
    if rows.size >= TREES_FEWEST:
        kinds.append(Kind(trees=True, by_mean=True, by_var=by_var))
        if residuals.alone:  # their means may tell targets, those of new rows do not
            kinds.append(Kind(trees=True, by_mean=False, by_var=by_var))
    best, slope, chosen = LEAST_GAIN, 0.0, None
    for kind in kinds:
        logs = cross_local(learned, half, fresh, run, kind)
        gain, steepness = _choose_slope(score[fresh], logs[fresh], weight)
        if gain > best:
            best, slope, chosen = gain, steepness, kind
    if chosen is None:
        return None, 0.0, np.zeros(X.shape[0])
    own = cross_local(learned, half, np.ones(rows.size, bool), run, chosen)
    found = train_local(learned, np.arange(min(rows.size, MOST_ROWS)), run, chosen)
    number = np.bincount(rows, minlength=X.shape[0])
    logs = np.bincount(rows, own, X.shape[0]) / np.maximum(number, 1)
    return found, slope, np.asarray(logs)


def _densities(stage: Stage, score: Floats, logs: Floats) -> Floats:
    """Log density of standardised residuals at new inputs with these local logarithms, (n,)."""
    kinds, found = stage.find_kinds(logs, np.zeros(logs.size, bool)), np.empty(score.size)
    for kind, tails in enumerate(stage.kinds):
        found[kinds == kind] = log_densities(tails, score[kinds == kind])
    return found


def _learn_loud(stage: Stage, score: Floats, logs: Floats, weight: Floats | None) -> Stage:
    """The stage with two kinds of tails, if they gain more than their components cost."""
    count = np.ones(score.size) if weight is None else weight
    best, found = LEAST_GAIN + _gain(stage.tails, score, count), stage
    for share in LOUD_SHARES:
        above = _quantile(logs, weight, 1.0 - share)
        parts = (logs < above, logs >= above)
        if min(part.sum() for part in parts) < LOUD_ROWS:
            continue
        both = [_tails(score[part], None if weight is None else weight[part]) for part in parts]
        pairs = zip(both, parts, strict=True)
        total = sum(_gain(tails, score[part], count[part]) for tails, part in pairs)
        if total > best:
            best, found = total, replace(stage, tails=both[0], loud=Loud(above, both[1]))
        elif found is stage:  # where halves do not differ, other shares hardly do
            break
    return found


def _gain(tails: Tails, score: Floats, count: Floats) -> float:
    """Log density of residuals, less the cost of the components, as in `learn_shape`."""
    cost = 0.5 * np.log(count.sum()) * (tails.weight > LEAST_SHARE).sum()
    return float(count @ log_densities(tails, score) - cost)


def _learn_growth(stage: Stage, score: Floats, logs: Floats, count: Floats) -> float:
    """By how much larger the log variance of rows that training has not seen is than of the others.

    The shape of the tails is that of the others. Few held-out rows say little about the level, so
    that the usual growth counts, too, as a Cauchy distribution: it is given up where the rows
    contradict it.
    """

    def loss(level: float) -> float:
        density = _densities(stage, score * np.exp(-0.5 * level), logs) - 0.5 * level
        usual = np.log1p(((level - USUAL_GROWTH) / USUAL_SPREAD) ** 2)
        return float(usual - count @ density)

    best = min(LEVELS.tolist(), key=loss)  # there may be several minima
    bounds = (best - LEVEL_STEP, best + LEVEL_STEP)
    return float(scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x)


def learn_again(stage: Stage, residuals: Residuals) -> Stage:
    """The stage with scale and tails learned from the fresh residuals; local noise stays.

    Fresh rows were not used to train the parameters, so there is no optimism to correct.
    """
    use, rows = residuals.fresh, residuals.rows
    score = (residuals.y - residuals.mean)[use] / np.sqrt(residuals.var[use])
    weight = None if residuals.weight is None else residuals.weight[use]
    logs = stage.logs[rows[use]]
    spread = score * np.exp(-0.5 * stage.slope * logs)
    if stage.loud is not None and use.sum() < LOUD_AGAIN:  # too few for both kinds
        return replace(stage, scale=_scale(spread, weight))
    return _learn_shapes(stage, spread, logs, weight)


def _tails(score: Floats, weight: Floats | None) -> Tails:
    """Tails of standardised residuals, of another shape if that describes them better."""
    return learn_shape(learn_tails(score, weight), score, weight)


def _choose_slope(score: Floats, logs: Floats, weight: Floats | None) -> tuple[float, float]:
    """What the slope of highest density gains in nats, with its own scale and tails, and itself."""
    some = np.linspace(0, score.size - 1, min(score.size, SLOPE_ROWS)).astype(np.int64)
    count = None if weight is None else weight[some]
    found = []
    for slope in SLOPES.tolist():
        density = _judge(score[some], slope * logs[some], count)[2]
        found.append((density * some.size, slope))
    best, slope = max(found)
    return best - found[0][0], slope


def _scale(score: Floats, weight: Floats | None) -> float:
    """Squared scale of residuals, by their median size: that of a Gaussian with this median."""
    square = (_quantile(np.abs(score), weight, 0.5) / 0.6744897501960817) ** 2
    return square if square > 1e-12 else 1.0


def _quantile(values: Floats, weight: Floats | None, share: float) -> float:
    """The smallest value that, with those below, has this share of the weight."""
    share -= 1e-9  # a tie does not hang on rounding errors of fractional weights
    if weight is None:
        place = max(int(np.ceil(share * values.size)) - 1, 0)
        return float(np.partition(values, place)[place])
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(total, share * total[-1])]])
