"""Advice about intervals, and about a test set that differs from training rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import binomtest

from triegp.metrics.forecasts import weighted_mean
from triegp.metrics.summary import Coverage
from triegp.plots.text import show_number
from triegp.report.advice import Advice, problem, remark
from triegp.report.facts import Evaluation, TargetFacts
from triegp.report.regions import LEVEL, Region
from triegp.report.words import percent

RARE = 0.001  # p value from which on a deviation is taken as real
OFF_OVERALL = 0.03  # deviation of a coverage from its nominal value that matters, 80 % and more
OFF_MIDDLE = 0.05  # at 50 %
OFF_IN_REGION = 0.07
DRIFT_ERRORS = 4.0  # standard errors between densities of test rows and training rows
DRIFT_RMSE = 1.15  # ratio of the errors


def on_intervals(target: TargetFacts) -> Iterator[Advice]:
    """Intervals that do not keep their promise, overall or else in a region."""
    for evaluation in (target.loo, target.test):
        if evaluation is None:
            continue
        overall = [*_off_overall(evaluation)]
        yield from overall
        if not overall:
            yield from _off_in_region(evaluation, _regions_of(target, evaluation))


def _off_overall(evaluation: Evaluation) -> Iterator[Advice]:
    source, scores = evaluation.source, evaluation.scores
    middle, *outer = scores.coverages
    off = [part for part in outer if _is_off(part, scores.n_effective, OFF_OVERALL)]
    if not off and _is_off(middle, scores.n_effective, OFF_MIDDLE):
        yield remark(
            "shape",
            f"The middle of the distributions is off ({source})",
            f"{percent(middle.observed)} of the targets lie in their {percent(middle.nominal, 0)} "
            "interval; wider intervals are right. The noise is not bell-shaped, for instance with "
            "two peaks.",
            "Use intervals of 80\u202f% and more. A feature that tells the cases apart would help.",
        )
    if off:
        coverage = max(off, key=lambda part: abs(part.observed - part.nominal))
        narrow = coverage.observed < coverage.nominal
        ends = f"{percent(coverage.low)} to {percent(coverage.high)}"
        yield problem(
            "narrow" if narrow else "wide",
            f"Intervals are too {'narrow' if narrow else 'wide'} ({source})",
            f"{percent(coverage.observed)} of the targets lie in their "
            f"{percent(coverage.nominal, 0)} interval" + (f"; chance would explain {ends}."),
            "If the model was fitted without calibration, fit with it. Otherwise look at the rows "
            "and regions below: dependent rows (time series, groups) and drift are common causes."
            if narrow
            else "Intervals promise less than they could. If the model was fitted without "
            "calibration, fit with it; otherwise use a lower nominal coverage.",
        )


def _regions_of(target: TargetFacts, evaluation: Evaluation) -> list[tuple[str, Region]]:
    regions = [("", region) for region in evaluation.by_width]
    if evaluation is target.main:
        for group in target.regions or ():
            regions += [(group.feature, region) for region in group.regions]
    return regions


def _off_in_region(
    evaluation: Evaluation, regions: Sequence[tuple[str, Region]]
) -> Iterator[Advice]:
    """The region that is furthest off, if chance does not explain it among so many."""
    off = [
        (abs(region.coverage - LEVEL), feature, region)
        for feature, region in regions
        if abs(region.coverage - LEVEL) >= OFF_IN_REGION
        and _is_real(region.coverage, region.n_effective, LEVEL, len(regions))
    ]
    if not off:
        return
    _, feature, region = max(off, key=lambda part: part[0])
    narrow = region.coverage < LEVEL
    place = f"{feature} is {region.label}" if feature else f"intervals are {region.label} wide"
    others = f" {len(off) - 1} more regions are off." if len(off) > 1 else ""
    yield problem(
        "narrow region" if narrow else "wide region",
        f"Intervals are too {'narrow' if narrow else 'wide'} in places ({evaluation.source})",
        f"Where {place}, {percent(region.coverage)} of {region.n_rows:,} "
        f"targets lie in their {percent(LEVEL, 0)} interval.{others}",
        "Right on average is not right everywhere. More rows there, or a feature that tells quiet "
        "from noisy rows, would help; until then, "
        + ("do not rely on intervals there." if narrow else "intervals there are too cautious."),
    )


def on_test_set(target: TargetFacts) -> Iterator[Advice]:
    """A test set that is predicted much worse than training rows."""
    loo, test = target.loo, target.test
    if loo is None or test is None:
        return
    density, weight = loo.forecast.log_density, loo.forecast.weight
    new, n_new = test.forecast.log_density, test.forecast.n_rows
    centre = weighted_mean(density, weight)
    spread = weighted_mean((density - centre) ** 2, weight)
    error = np.sqrt(spread / loo.scores.n_effective + new.var() / n_new)
    worse = test.scores.rmse > DRIFT_RMSE * loo.scores.rmse
    gap = centre - float(new.mean())
    if gap > DRIFT_ERRORS * error and worse:
        yield problem(
            "drift",
            "The test set is predicted much worse than training rows",
            f"RMSE {show_number(test.scores.rmse, 3)} on the test set, "
            f"{show_number(loo.scores.rmse, 3)} by leave-one-out. Chance does not explain the "
            "difference.",
            "Test rows come from elsewhere: another period, other groups, other ways of measuring. "
            "Compare their features with those of training; train on rows like those to come.",
        )


def _is_off(coverage: Coverage, n_rows: float, least: float) -> bool:
    """Whether a coverage is so far from its nominal value that it matters, and not by chance."""
    far = abs(coverage.observed - coverage.nominal) >= least
    return far and _is_real(coverage.observed, n_rows, coverage.nominal, 4)


def _is_real(share: float, n_rows: float, nominal: float, n_tests: int) -> bool:
    """Whether a share of rows differs from the nominal one beyond chance, in one of n tests.

    n_rows: effective number of rows.
    """
    n = max(1, round(n_rows))
    p_value = binomtest(round(share * n), n, nominal).pvalue
    return bool(p_value * n_tests < RARE)
