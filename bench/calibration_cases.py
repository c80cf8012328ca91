"""Data of known noise, on which intervals are checked: one table of cases.

A case draws training rows, in one batch or several, and inputs to ask at, and knows the true
function and the true noise. So fresh observations can be drawn at any input.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

NOISE = 0.3
JITTER = 1e-4
GRID = 0.5  # of the discrete targets
OUTSIDE = (1.05, 1.2, 2.0, 100.0)  # of [0, 1]


def smooth(X):
    """The function of most cases: two features matter, the others don't."""
    return np.sin(6 * X[:, 0]) + X[:, 1] ** 2


def constant_noise(X):
    return np.full(len(X), NOISE)


def normal_draw(deviation, rng):
    return deviation * rng.standard_normal(deviation.size)


def uniform(n, rng, low=0.0, high=1.0):
    return rng.uniform(low, high, (n, 3))


@dataclass(frozen=True)
class Truth:
    """What generates observations at given inputs.

    Attributes
    ----------
    mean : X (m, d) -> (m,)
        The true function.
    deviation : X -> (m,)
        The true standard deviation of the noise.
    noise : (deviation, rng) -> (m,)
        Draws noise of that deviation.
    grid : float
        Observations are rounded to multiples of this; 0 does not round.
    """

    mean: Callable = smooth
    deviation: Callable = constant_noise
    noise: Callable = normal_draw
    grid: float = 0.0

    def observe(self, X, rng):
        """Draw a fresh observation at each input."""
        y = self.mean(X) + self.noise(self.deviation(X), rng)
        return y if self.grid == 0 else self.grid * np.round(y / self.grid)


@dataclass(frozen=True)
class Case:
    """One kind of data.

    Attributes
    ----------
    name, group, about : str
        Name of its file, heading of its table, and its first column there.
    truth : Truth
        The function and the noise.
    n_rows : int
        Training rows in all; decides the number of seeds.
    draw : (truth, rng) -> list of (X, y, weight)
        Batches of training rows; the first is for `fit`, the others are for `partial_fit`.
    ask : (n, rng) -> X
        New inputs.
    at_least : bool
        Whether at new inputs only too low a coverage counts as a failure.
    training : bool
        Whether the page shows coverage at training inputs; not if another case has the same rows.
    """

    name: str
    group: str
    about: str
    truth: Truth
    n_rows: int
    draw: Callable
    ask: Callable = uniform
    at_least: bool = False
    training: bool = True


# Training rows. Each function returns batches of (X, y, weight).


def whole(n, truth, rng, inputs=uniform):
    X = inputs(n, rng)
    return [(X, truth.observe(X, rng), None)]


def copied(n, copies, jitter, truth, rng):
    """Every row several times with the same y."""
    X = uniform(n, rng)
    y = np.tile(truth.observe(X, rng), copies)
    X = np.tile(X, (copies, 1))
    return [(X + jitter * rng.uniform(-1, 1, X.shape), y, None)]


def replicated(n, truth, rng):
    """Every input observed 1 to 4 times."""
    X = uniform(n, rng)
    X = np.repeat(X, rng.integers(1, 5, n), axis=0)
    return [(X, truth.observe(X, rng), None)]


def weighted(n, weight, truth, rng):
    """`weight` is a number, or None for random integers from 1 to 5."""
    X = uniform(n, rng)
    weights = rng.integers(1, 6, n).astype(float) if weight is None else np.full(n, weight)
    return [(X, truth.observe(X, rng), weights)]


def streamed(first, more, truth, rng, batches=4, inputs=uniform):
    """`first` rows, then `more` in batches; `inputs` draws the first."""
    start = inputs(first, rng)
    parts = [start, *np.array_split(uniform(more, rng), batches)]
    return [(X, truth.observe(X, rng), None) for X in parts]


def constant_first(first, more, truth, rng):
    """As `streamed`, but the first targets are all equal."""
    (X, _, _), *others = streamed(first, more, truth, rng)
    return [(X, np.ones(first), None), *others]


# Inputs


def crowded(n, rng):
    """Most rows have a small first feature."""
    X = uniform(n, rng)
    X[:, 0] = rng.beta(1, 4, n)
    return X


def sparse_part(n, rng):
    """The part of the box in which `crowded` has few rows."""
    X = uniform(n, rng)
    X[:, 0] = rng.uniform(0.6, 1, n)
    return X


def switching(n, rng):
    """The last feature is 0 or 1."""
    X = uniform(n, rng)
    X[:, 2] = rng.integers(0, 2, n)
    return X


def line(n, rng):
    return rng.random((n, 1))


def at_point(point, n, rng):
    """One input is enough: observations at it are drawn many times."""
    return np.array([[point]])


# Truths


def rising_noise(X):
    return 0.02 + 0.5 * X[:, 0]


def switched_noise(X):
    return np.where(X[:, 2] > 0.5, 1.0, 0.05)


def student_draw(deviation, rng):
    """Student's t with 3 degrees of freedom, whose deviation is sqrt(3)."""
    return deviation * rng.standard_t(3, deviation.size) / np.sqrt(3)


def no_signal(X):
    return np.zeros(len(X))


def straight(X):
    return 3 * X[:, 0]


NORMAL = Truth()
RISING = Truth(deviation=rising_noise)
SWITCHED = Truth(deviation=switched_noise)
STUDENT = Truth(noise=student_draw)
DISCRETE = Truth(grid=GRID)
PURE_NOISE = Truth(mean=no_signal)
LINE = Truth(mean=straight)

SIZES = "Number of rows"
NOISES = "Kinds of noise"
COPIES = "Copies, weights and replicates"
ELSEWHERE = "Other parts of the box, and outside"
STREAMS = "Streams"


# Families of cases; the tests use them with fewer rows.


def normal(n):
    return Case(f"normal-{n}", SIZES, f"{n:,} rows", NORMAL, n, partial(whole, n))


def heteroscedastic(n):
    about = f"deviation 0.02 + 0.5 x0, {n:,} rows"
    return Case(f"heteroscedastic-{n}", NOISES, about, RISING, n, partial(whole, n))


def switched(n):
    about = f"a binary feature switches the deviation between 0.05 and 1, {n:,} rows"
    draw = partial(whole, n, inputs=switching)
    return Case(f"switched-{n}", NOISES, about, SWITCHED, n, draw, switching)


def student(n):
    about = f"Student's t, 3 degrees of freedom, {n:,} rows"
    return Case(f"student-{n}", NOISES, about, STUDENT, n, partial(whole, n))


def discrete(n):
    about = f"targets rounded to multiples of {GRID}, {n:,} rows"
    return Case(f"discrete-{n}", NOISES, about, DISCRETE, n, partial(whole, n))


def noise_alone(n):
    about = f"noise only, {n:,} rows"
    return Case(f"no-signal-{n}", NOISES, about, PURE_NOISE, n, partial(whole, n))


def twins(n):
    about = f"{n:,} rows, each twice with the same y"
    return Case(f"twins-{n}", COPIES, about, NORMAL, 2 * n, partial(copied, n, 2, 0.0))


def near_twins(n):
    about = f"{n:,} rows, each three times with the same y, inputs moved by {JITTER:g}"
    return Case(f"near-twins-{n}", COPIES, about, NORMAL, 3 * n, partial(copied, n, 3, JITTER))


def of_weight(n, weight):
    about = f"{n:,} rows, each of weight {weight:g}"
    draw = partial(weighted, n, weight)
    return Case(f"weight-{weight:g}-{n}", COPIES, about, NORMAL, n, draw)


def of_random_weight(n):
    about = f"{n:,} rows, weights 1 to 5 at random"
    return Case(f"weight-random-{n}", COPIES, about, NORMAL, n, partial(weighted, n, None))


def replicates(n):
    about = f"{n:,} inputs, each observed 1 to 4 times with independent noise"
    return Case(f"replicates-{n}", COPIES, about, NORMAL, 5 * n // 2, partial(replicated, n))


def shift_to_sparse_part(n):
    about = f"x0 from Beta(1, 4), asked at x0 > 0.6, {n:,} rows"
    draw = partial(whole, n, inputs=crowded)
    return Case(f"shift-sparse-{n}", ELSEWHERE, about, NORMAL, n, draw, sparse_part)


def shift_to_box(n):
    about = f"x0 from Beta(1, 4), asked in all of the box, {n:,} rows"
    draw = partial(whole, n, inputs=crowded)
    return Case(f"shift-box-{n}", ELSEWHERE, about, NORMAL, n, draw, training=False)


def outside(n, point):
    return Case(
        f"outside-{point:g}",
        ELSEWHERE,
        f"y = 3 x on [0, 1], asked at x = {point:g}, {n:,} rows",
        LINE,
        n,
        partial(whole, n, inputs=line),
        partial(at_point, point),
        at_least=True,
        training=point == OUTSIDE[0],
    )


def stream(first, more):
    about = f"{_rows(first)}, then {more:,} in 4 batches"
    draw = partial(streamed, first, more)
    return Case(f"stream-{first}", STREAMS, about, NORMAL, first + more, draw)


def stream_after_equal_targets(first, more):
    about = f"{_rows(first)} of equal y, then {more:,} that vary"
    draw = partial(constant_first, first, more)
    return Case("stream-constant", STREAMS, about, NORMAL, first + more, draw)


def stream_from_outside(first, more):
    about = f"{_rows(first)} in [0.25, 0.75]^3, then {more:,} in [0, 1]^3"
    draw = partial(streamed, first, more, inputs=partial(uniform, low=0.25, high=0.75))
    return Case("stream-outside", STREAMS, about, NORMAL, first + more, draw)


def _rows(n):
    return "1 row" if n == 1 else f"{n:,} rows"


CASES = (
    *map(normal, (10, 30, 100, 300, 600, 1_000, 2_000, 10_000, 20_000)),
    *map(heteroscedastic, (2_000, 20_000)),
    switched(2_000),
    student(1_000),
    discrete(1_000),
    *map(noise_alone, (100, 1_000)),
    twins(500),
    near_twins(300),
    of_weight(1_000, 2.0),
    of_weight(1_000, 5.0),
    of_random_weight(1_500),
    replicates(400),
    shift_to_sparse_part(1_000),
    shift_to_box(1_000),
    *(outside(500, point) for point in OUTSIDE),
    *(stream(first, 1_900) for first in (1, 10, 100)),
    stream(500, 20_000),
    stream_after_equal_targets(20, 1_980),
    stream_from_outside(500, 1_500),
)
BY_NAME = {case.name: case for case in CASES}
