"""The section of docs/calibration.md that `python -m bench battery` writes."""

from itertools import groupby

import numpy as np

from bench import battery
from bench.calibration import ESTIMATORS
from bench.tables import table


def section():
    """Lines, from what is stored."""
    stored = battery.read()
    low, high = battery.GOALS[90]
    lowest, highest = battery.GOALS[99]
    return [
        "## No signal, regions, few rows",
        "",
        "Where error bars are hard to learn. **No signal:** y = sqrt(2 R2) sin(2 pi x0) + sqrt(1 - R2) noise,",
        "with R2 = 0, 0.01, 0.05 or 0.2, noise of variance 1 and five kinds, and 1, 3, 10 or 50 uniform features.",
        "Every kind of noise meets every R2 at 300, 1,000 and 3,000 rows; the number of features rotates. A few",
        f"fits have more rows. Each figure of coverage is of one fit, on {battery.FRESH:,} fresh rows. The tables show",
        "the least, the median and the largest of the fits. Chance alone moves even quantiles of n residuals of the",
        "truth: at 90 % by a standard deviation of 1.7 points for 300 rows and 0.9 for 1,000, at 99 % by 0.6 and 0.3.",
        "",
        "Goals for each fit:",
        "",
        f"* {low:g} to {high:g} % in the interval of 90 %, {lowest:g} to {highest:g} % in that of 99 %;",
        f"* `loo_score_` at most {battery.MOST_EXCESS:g} standard errors above the score of the truth, the mean log",
        "  density of the same targets under the distribution that they were drawn from.",
        "",
        *(line for name in ESTIMATORS for line in [*summary(stored, name), ""]),
        *misses(stored),
        "",
        "**Regions, few rows, no noise:** coverage of 90 % intervals, mean over seeds, with the least and the",
        "largest. Means outside of the goal are bold. Outliers are in the training rows alone; Poisson",
        "counts are asked about where their expectation is above 2.5.",
        "",
        *by_region(stored),
        "",
        "Run: `python -m bench battery` measures what is not in `bench/results/calibration/battery.json`.",
        "",
    ]


def no_signal(stored, estimator):
    """[(cell, its figures)] of what is stored."""
    cells = [(cell, stored.get(f"{estimator}: {cell.name}")) for cell in battery.fraction()]
    return [entry for entry in cells if entry[1] is not None]


def excess(figures):
    """Of loo_score_ over the score of the truth, in standard errors."""
    return figures["loo_excess"] / figures["loo_error"]


def summary(stored, estimator):
    """Table of an estimator: a row for each number of rows and each kind of noise."""
    fits = no_signal(stored, estimator)
    sizes = dict.fromkeys(cell.n_rows for cell in battery.fraction())
    groups = {f"{n:,} rows": [f for cell, f in fits if cell.n_rows == n] for n in sizes}
    for kind in battery.NOISES:
        groups[f"{kind} noise"] = [f for cell, f in fits if cell.noise == kind]
    rows = []
    for about, figures in groups.items():
        if not figures:
            rows.append([about, "0", *["not run"] * 3])
            continue
        spans = []
        for c in battery.GOALS:
            values = [f[str(c)] for f in figures]
            spans.append(" / ".join(f"{v:.1f}" for v in np.quantile(values, [0, 0.5, 1])))
        rows.append([about, str(len(figures)), *spans, f"{max(map(excess, figures)):+.1f}"])
    head = [
        f"{estimator}, no signal",
        "fits",
        *(f"{c} %: least / median / largest" for c in battery.GOALS),
    ]
    return table([*head, "largest excess of loo_score_, standard errors"], rows)


def misses(stored):
    """The fits outside of the goals."""
    rows, n_fits = [], 0
    for estimator in ESTIMATORS:
        for cell, figures in no_signal(stored, estimator):
            n_fits += 1
            if text := missed(figures):
                about = [cell.noise, f"{cell.r2:g}", f"{cell.n_rows:,}", str(cell.n_features)]
                rows.append([estimator, *about, text])
    if not rows:
        return [f"All {n_fits} fits are within the goals."]
    head = ["estimator", "noise", "R2", "rows", "features", "outside of the goals"]
    return [f"{len(rows)} of {n_fits} fits are outside of the goals:", "", *table(head, rows)]


def missed(figures):
    """Which goals a fit without signal misses; empty if none."""
    texts = [
        f"{figures[str(c)]:.1f} for {c} %"
        for c, (low, high) in battery.GOALS.items()
        if not low <= figures[str(c)] <= high
    ]
    if excess(figures) > battery.MOST_EXCESS:
        texts.append(
            f"loo_score_ {figures['loo_excess']:.4f} above the truth, {excess(figures):.1f} standard errors"
        )
    return "; ".join(texts)


def by_region(stored):
    """A row for each case and region, both estimators."""
    rows = []
    for (about, n_rows, goal), cells in groupby(
        battery.regions(), key=lambda cell: (cell.about, cell.n_rows, cell.goal)
    ):
        cells = list(cells)
        seeds = {
            name: [stored[key] for cell in cells if (key := f"{name}: {cell.name}") in stored]
            for name in ESTIMATORS
        }
        measured = [figures for found in seeds.values() for figures in found]
        names = [name for name in dict(*measured[:1]) if name not in ("fit_seconds", "machine")]
        for region in names:
            texts = [text_of([f[region] for f in found], goal) for found in seeds.values()]
            low, high = goal
            rows.append([about, f"{n_rows:,}", region, f"{low:g} to {high:g}", *texts])
    return table(["case", "rows", "region", "goal", *ESTIMATORS], rows)


def text_of(values, goal):
    """Mean, least and largest over seeds."""
    if not values:
        return "not run"
    mean, (low, high) = np.mean(values), goal
    text = f"{mean:.1f}" if low <= round(mean, 1) <= high else f"**{mean:.1f}**"
    return f"{text} ({min(values):.1f} to {max(values):.1f})"
