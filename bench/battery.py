"""Whether the calibration keeps its promises where that is hard: `python -m bench battery`.

Without signal or with little, by kind of noise, number of rows and of features; in regions whose
noise differs; with few rows; without noise. All fits are with default settings, the cheap ones
first, and each is a cell of bench/results/calibration/battery.json. A stored cell is not measured
again; delete its line, or the file, to have it measured. At the end docs/calibration.md is written.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
from scipy import stats

from bench import calibration
from bench.calibration_cases import crowded, smooth, uniform
from bench.measure import machine

NOISES = {  # of mean 0 and variance 1
    "uniform": stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)),
    "Gaussian": stats.norm(),
    "Laplace": stats.laplace(scale=1 / np.sqrt(2)),
    "t3": stats.t(3, scale=1 / np.sqrt(3)),
    "exponential": stats.expon(-1),
}
SHARES = (0.0, 0.01, 0.05, 0.2)  # R2 of the true function
FEATURES = (1, 3, 10, 50)
FRESH = 4_000  # new rows on which coverage is counted
GOALS = {90: (87.0, 93.0), 99: (97.5, 99.7)}  # per cent, of a fit without signal or with little
MOST_EXCESS = 2.0  # standard errors by which loo_score_ may exceed the score of the truth
BY_REGION, BY_MEAN = (85.0, 95.0), (87.0, 93.0)  # goals of means over seeds, for 90 %


@dataclass(frozen=True)
class NoSignal:
    """y = sqrt(2 R2) sin(2 pi x0) + sqrt(1 - R2) noise, uniform features."""

    noise: str
    r2: float
    n_rows: int
    n_features: int

    @property
    def name(self):
        return f"{self.noise} noise, R2 {self.r2:g}, {self.n_rows} rows x {self.n_features}"

    def draw(self, n, rng):
        """X, the function there, and noise in units of y."""
        X = rng.random((n, self.n_features))
        noise = NOISES[self.noise].rvs(n, random_state=rng)
        mean = np.sqrt(2 * self.r2) * np.sin(2 * np.pi * X[:, 0])
        return X, mean, np.sqrt(1 - self.r2) * noise

    def log_density(self, noise):
        """Of noise in units of y."""
        deviation = np.sqrt(1 - self.r2)
        return NOISES[self.noise].logpdf(noise / deviation) - np.log(deviation)


def fraction():
    """Every noise and R2 at every size up to 3,000; all levels of features meet all others."""
    levels = list(product(range(3), range(5), range(4)))
    levels = [(size, noise, r2, (size + noise + r2) % 4) for size, noise, r2 in levels]
    levels += [(3, k % 5, k % 4, (k + k // 4) % 4) for k in range(8)]
    levels += [(4, 1, 0, 2), (4, 4, 2, 1), (4, 3, 3, 3)]
    sizes, noises = (300, 1_000, 3_000, 10_000, 30_000), tuple(NOISES)
    return [NoSignal(noises[i], SHARES[j], sizes[k], FEATURES[d]) for k, i, j, d in levels]


def measure_no_signal(cell, model):
    """Coverage of fresh rows, and what loo_score_ exceeds the score of the truth by."""
    levels = [list(NOISES).index(cell.noise), SHARES.index(cell.r2)]
    rng = np.random.default_rng([*levels, cell.n_rows, cell.n_features])
    X, mean, noise = cell.draw(cell.n_rows, rng)
    fit_seconds = fit(model, X, mean + noise)
    X, mean, fresh = cell.draw(FRESH, rng)
    found = {str(c): 100 * inside(model, X, mean + fresh, c).mean() for c in calibration.LEVELS}
    truth = cell.log_density(noise)
    error = np.std(model.loo_log_density() - truth) / np.sqrt(cell.n_rows)
    excess = {"loo_excess": model.loo_score_ - truth.mean(), "loo_error": error}
    return {name: float(value) for name, value in (found | excess).items()} | fit_seconds


def fit(model, X, y):
    started = time.perf_counter()
    model.fit(X, y)
    return {"fit_seconds": time.perf_counter() - started}


def inside(model, X, y, c):
    """Which targets are in the intervals of c per cent."""
    low, high = model.predict_interval(X, coverage=c / 100).T
    return (low <= y) & (y <= high)


# Regions: each draw returns X, y and {region: which rows}


def rotated(n, rng, new):
    X = rng.random((n, 5))
    along = X[:, :2].sum(axis=1) - X[:, 2:4].sum(axis=1)
    y = smooth(X) + 0.2 * np.exp(2 * along) * rng.standard_normal(n)
    return X, y, {"loud half": along > 0, "quiet half": along <= 0}


def poisson(n, rng, new):
    X = rng.random((n, 5))
    mean = np.exp(smooth(X))
    return X, rng.poisson(mean).astype(float), {"expectation above 2.5": mean > 2.5}


def bimodal(n, rng, new):
    X = rng.random((n, 5))
    half = X[:, 2] > 0.5
    z = rng.standard_normal(n)
    noise = np.where(half, rng.choice([-1, 1], n) + 0.1 * z, 0.3 * z)
    return X, smooth(X) + noise, {"bimodal half": half, "Gaussian half": ~half}


def outliers(n, rng, new):
    X = rng.random((n, 5))
    y = smooth(X) + 0.3 * rng.standard_normal(n)
    if not new:
        y[: n // 100] += 10 * rng.choice([-1, 1], n // 100)
    return X, y, all_of(n)


def shifted(n, rng, new):
    X = uniform(n, rng) if new else crowded(n, rng)
    if not new:
        X[:2] = [[0.0] * 3, [1.0] * 3]  # the box holds all that is asked
    return X, smooth(X) + 0.02 * rng.standard_normal(n), all_of(n)


def unseen(n, rng, new):
    import pandas as pd

    X, category = uniform(n, rng), rng.integers(0, 400, n)
    y = smooth(X) + rng.standard_normal(400)[category] + 0.3 * rng.standard_normal(n)
    labels = [f"{'new' if new else 'known'} {c}" for c in category]
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "category": pd.Categorical(labels)})
    return frame, y, all_of(n)


def no_signal(n, rng, new):
    return rng.random((n, 5)), rng.standard_normal(n), all_of(n)


def zeros(n, rng, new):
    y = np.where(rng.random(n) < 0.8, 0.0, rng.exponential(size=n))
    return rng.random((n, 5)), y, all_of(n)


def no_noise(n, rng, new):
    X = uniform(n, rng)
    return X, smooth(X), all_of(n)


def all_of(n):
    return {"all": np.ones(n, dtype=bool)}


@dataclass(frozen=True)
class Regions:
    """Data whose intervals of 90 % are counted by region, with one seed.

    draw : (n, rng, new) -> X, y, {region: which rows}; `new` tells training rows from fresh ones.
    """

    about: str
    draw: Callable = field(repr=False)
    n_rows: int
    seed: int
    goal: tuple[float, float] = BY_REGION

    @property
    def name(self):
        return f"{self.about}, {self.n_rows} rows, seed {self.seed}"


def regions():
    """Cases by seed."""
    few = partial(Regions, n_rows=50, goal=BY_MEAN)
    kinds = [
        (partial(Regions, "noise along a rotated direction", rotated, 2_000), 3),
        (partial(Regions, "Poisson counts", poisson, 2_000), 3),
        (partial(Regions, "bimodal noise in half of the box", bimodal, 2_000), 3),
        (partial(Regions, "1 % outliers in training", outliers, 300), 3),
        (partial(Regions, "covariate shift within the box", shifted, 300), 3),
        (partial(Regions, "unseen categories", unseen, 2_000), 3),
        (partial(Regions, "no noise", no_noise, 2_000), 3),
        (partial(few, "no signal", no_signal), 10),
        (partial(few, "80 % zeros", zeros), 10),
    ]
    return [kind(seed=seed) for kind, seeds in kinds for seed in range(seeds)]


def measure_regions(cell, model):
    """Coverage of 90 % intervals by region, on fresh rows."""
    rng = np.random.default_rng([cell.seed, cell.n_rows])
    X, y, _ = cell.draw(cell.n_rows, rng, new=False)
    fit_seconds = fit(model, X, y)
    X, y, masks = cell.draw(FRESH, rng, new=True)
    hit = inside(model, X, y, 90)
    return {name: 100 * float(hit[rows].mean()) for name, rows in masks.items()} | fit_seconds


# Cells


def path():
    return calibration.FOLDER / "battery.json"


def read():
    """{estimator and name of a cell: its figures}."""
    return json.loads(path().read_text()) if path().exists() else {}


def run_cell(cell, estimator):
    """The figures of a cell, measured if they are not stored."""
    key = f"{estimator}: {cell.name}"
    stored = read()
    if key not in stored:
        seed = cell.seed if isinstance(cell, Regions) else 0
        measure = measure_regions if isinstance(cell, Regions) else measure_no_signal
        figures = measure(cell, calibration.new_estimator(estimator, seed))
        stored = read() | {key: figures | {"machine": machine()}}
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in stored.items()]
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return stored[key]


def main(estimators=calibration.ESTIMATORS):
    from bench import calibration_page

    cells = sorted([*regions(), *fraction()], key=lambda cell: cell.n_rows)
    for estimator, cell in product(estimators, cells):
        figures = run_cell(cell, estimator)
        texts = [f"{name} {value:.4g}" for name, value in figures.items() if name != "machine"]
        print(estimator, cell.name, *texts, sep="  ", flush=True)
    calibration_page.main()
