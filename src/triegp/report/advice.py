"""Advice: what is off with a model, by which evidence, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, spearmanr

from triegp.report.facts import Evaluation, Facts, TargetFacts
from triegp.report.features import show_number
from triegp.report.forecasts import share_of
from triegp.report.oddities import MANY_OUTLIERS
from triegp.report.regions import LEVEL, Region
from triegp.report.words import percent

Floats = npt.NDArray[np.float64]

FEW_ROWS = 200  # with fewer, error bars are rough
LEAST_COPIES = 0.01  # share of copies worth a word
LEAST_SHARE = 0.005  # explained variance below which a feature does next to nothing
LEAST_R2 = 0.05  # below which a model explains next to nothing
RARE = 0.001  # p value from which on a deviation is taken as real
OFF_OVERALL = 0.03  # deviation of a coverage from its nominal value that matters, 80 % and more
OFF_MIDDLE = 0.05  # at 50 %
OFF_IN_REGION = 0.07
LEAST_SKEW = 0.2  # of residuals, by quantiles
LEAST_TREND = 0.3  # rank correlation of absolute residuals and means
DRIFT_ERRORS = 4.0  # standard errors between densities of test rows and training rows
DRIFT_RMSE = 1.15  # ratio of the errors
FEW_VALUES = 10  # distinct values of a target
MOST_NAMES = 5  # features named in one sentence


@dataclass(frozen=True)
class Advice:
    """One piece of advice.

    Attributes
    ----------
    rule : str
        Name of the rule that found it.
    serious : bool
        Whether predictions or error bars suffer; otherwise it is a remark.
    target : str or None
        Target that it is about; None if it is about the model.
    title, reason, action : str
        What is off, the evidence, and what to do.
    """

    rule: str
    serious: bool
    target: str | None
    title: str
    reason: str
    action: str


def advise(facts: Facts) -> tuple[Advice, ...]:
    """All advice that the facts support, serious advice first."""
    found = [*_on_training(facts), *_on_data(facts)]
    for target in facts.targets:
        own = [*_on_target(target, facts), *_on_intervals(target), *_on_test_set(target)]
        several = len(facts.fit.targets) > 1
        found += [replace(one, target=target.name if several else None) for one in own]
    return tuple(sorted(found, key=lambda one: not one.serious))


def _on_training(facts: Facts) -> Iterator[Advice]:
    fit = facts.fit
    if fit.diverged:
        yield Advice(
            "diverged",
            True,
            None,
            "Training did not converge",
            "The likelihood fell, or linear systems could not be solved. The best parameters found "
            "before are kept.",
            "Look for extreme values in features and target, try another random_state, or a larger "
            "n_trees with a smaller max_iter.",
        )
    if fit.stopped_early:
        yield Advice(
            "stopped",
            True,
            None,
            "Training was stopped early",
            "The time budget or Ctrl-C ended training, or some steps were left out to keep within "
            "the budget.",
            "Raise time_budget, or fit again without it. Accuracy and error bars can only gain.",
        )
    if fit.n_rows < FEW_ROWS:
        yield Advice(
            "few rows",
            True,
            None,
            f"There are few rows, {fit.n_rows:,}",
            "With so few rows, what the model has learned and the error bars are rough; so are the "
            "scores in this report.",
            "Take the intervals beside the scores seriously. More rows help more than any setting.",
        )


def _on_data(facts: Facts) -> Iterator[Advice]:
    fit, outside = facts.fit, facts.outside
    if fit.n_copies >= max(2.0, LEAST_COPIES * fit.n_rows):
        yield Advice(
            "copies",
            True,
            None,
            f"{fit.n_copies:,} rows are copies of others",
            f"{percent(fit.n_copies / fit.n_rows)} of the rows repeat another row with the same "
            "target, or nearly. The model counts each group of copies as one observation.",
            "Find out where they come from: joined tables and repeated records are common causes. "
            "Keep copies out of test sets, or scores will look too good.",
        )
    if fit.constant:
        yield Advice(
            "constant",
            False,
            None,
            f"{_count(fit.constant, 'feature')} never {_verb(fit.constant, 'changes', 'change')}",
            f"{_listed(fit.constant)} {_verb(fit.constant, 'has', 'have')} the same value in all "
            "training rows.",
            f"Leave {_verb(fit.constant, 'it', 'them')} out, or check whether the data were "
            "filtered by mistake. Nothing is known about other values.",
        )
    if outside is not None and outside.n_outside > outside.expected + 3 * np.sqrt(
        max(outside.expected, 1.0)
    ):
        yield Advice(
            "outside",
            True,
            None,
            f"{outside.n_outside:,} test rows lie outside the training range",
            f"{percent(outside.n_outside / outside.n_rows)} of the test rows have a value beyond "
            "the range of the training rows, or one that training has not seen. Chance would "
            f"explain about {show_number(outside.expected, 2)}.",
            "Predictions there are extrapolations with wide intervals. Train on rows that cover "
            "the range in which the model is used.",
        )


def _on_target(target: TargetFacts, facts: Facts) -> Iterator[Advice]:
    main = target.main
    idle = [
        one.label
        for one in target.importances
        if one.share < LEAST_SHARE and one.label not in facts.fit.constant
    ]
    if idle and len(target.importances) > 1:
        yield Advice(
            "idle",
            False,
            None,
            f"{_count(idle, 'feature')} {_verb(idle, 'does', 'do')} next to nothing",
            f"{_listed(idle)} {_verb(idle, 'explains', 'explain')} less than "
            f"{percent(LEAST_SHARE)} of the explained variance{_verb(idle, '', ' each')}.",
            f"Fit without {_verb(idle, 'it', 'them')}: the model gets smaller and faster, and "
            "often a little better. Compare the leave-one-out scores.",
        )
    if main is None:
        return
    if target.n_distinct == 1:
        yield Advice(
            "constant target",
            True,
            None,
            "The target never changes",
            f"All rows have the value {show_number(float(main.forecast.y[0]))}.",
            "There is nothing to learn. Check that the right column was chosen as the target.",
        )
        return
    if target.n_distinct is not None and (
        target.n_distinct <= FEW_VALUES and main.forecast.n_rows >= 10 * target.n_distinct
    ):
        yield Advice(
            "few values",
            False,
            None,
            f"The target has {target.n_distinct} distinct values only",
            "The model treats it as a continuous number, so intervals end between the values that "
            "occur.",
            "If the values are classes, a classifier suits them better. If they are counts or "
            "grades, read predictions as averages.",
        )
    if main.scores.r2 < LEAST_R2:
        yield Advice(
            "no signal",
            True,
            None,
            "The features explain next to nothing",
            f"By {main.forecast.source}, the share of variance explained is "
            f"{percent(max(main.scores.r2, 0.0))}: hardly better than predicting the mean.",
            "Look for features that relate to the target. Check that rows of features and targets "
            "belong together.",
        )
    yield from _on_residuals(target, main, facts)


def _on_residuals(target: TargetFacts, main: Evaluation, facts: Facts) -> Iterator[Advice]:
    forecast = main.forecast
    index = [one.name for one in facts.fit.targets].index(target.name)
    enough = forecast.n_rows >= FEW_ROWS
    if enough and facts.fit.targets[index].transform == "identity":
        low, middle, high = np.quantile(forecast.residual, [0.05, 0.5, 0.95])
        skew = (high + low - 2.0 * middle) / (high - low) if high > low else 0.0
        trend = _rank_correlation(np.abs(forecast.residual), forecast.mean)
        grows = trend > LEAST_TREND and bool(np.all(forecast.y > 0))
        if abs(skew) > LEAST_SKEW or grows:
            reason = (
                f"Errors are skewed: a tenth of them lies beyond {show_number(low, 3)} and "
                f"{show_number(high, 3)}, around a median of {show_number(middle, 3)}."
                if abs(skew) > LEAST_SKEW
                else "Errors grow with the prediction: the rank correlation of their size with the "
                f"prediction is {trend:.2f}, and the target is positive."
            )
            yield Advice(
                "skewed",
                False,
                None,
                "A transform of the target may help",
                reason,
                "Fit with target_transform='auto', which tries several, and compare the "
                "leave-one-out scores.",
            )
    if target.n_outliers and target.n_outliers <= max(3.0, MANY_OUTLIERS * forecast.n_rows):
        some = ", ".join(str(row.row) for row in target.outliers[:MOST_NAMES])
        yield Advice(
            "outliers",
            False,
            None,
            f"{_number(target.n_outliers, 'row')} {'looks' if target.n_outliers == 1 else 'look'} "
            "like outliers"
            * (target.n_outliers > 1)
            + "like an outlier" * (target.n_outliers == 1),
            "Their targets are further from the prediction than noise explains, even "
            f"among {forecast.n_rows:,} rows: row {some}"
            + (" and others." if target.n_outliers > len(target.outliers[:MOST_NAMES]) else "."),
            "Check these rows for errors of measurement or entry. Correct or remove those that are "
            "wrong, and keep those that are merely rare.",
        )
    elif target.n_outliers:
        yield Advice(
            "long tails",
            False,
            None,
            "Noise has long tails",
            f"{target.n_outliers:,} rows ({percent(target.n_outliers / forecast.n_rows)}) are "
            "further out than Gaussian noise would put any. So many are hardly errors in the data.",
            "Nothing needs to be done if the coverages are right: the intervals allow for it. "
            "Prefer them to the deviation alone.",
        )


def _on_intervals(target: TargetFacts) -> Iterator[Advice]:
    for evaluation in (target.loo, target.test):
        if evaluation is None:
            continue
        found = [*_off_overall(evaluation)]
        yield from found
        if not found:
            yield from _off_in_region(evaluation, _regions_of(target, evaluation))


def _off_overall(evaluation: Evaluation) -> Iterator[Advice]:
    source, scores = evaluation.forecast.source, evaluation.scores
    found = []
    for coverage in scores.coverages:
        off = coverage.observed - coverage.nominal
        least = OFF_OVERALL if coverage.nominal > 0.5 else OFF_MIDDLE
        args = coverage.observed, scores.n_rows, coverage.nominal, len(scores.coverages)
        if abs(off) >= least and _is_real(*args):
            found.append((abs(off), coverage))
    if found:
        coverage = max(found, key=lambda one: one[0])[1]
        narrow = coverage.observed < coverage.nominal
        yield Advice(
            "narrow" if narrow else "wide",
            True,
            None,
            f"Intervals are too {'narrow' if narrow else 'wide'} ({source})",
            f"{percent(coverage.observed)} of the targets lie in their "
            f"{percent(coverage.nominal, 0)} interval; {percent(coverage.low)} to "
            f"{percent(coverage.high)} with the chance of the sample.",
            "If the model was fitted without calibration, fit with it. Otherwise look at the rows "
            "and regions below: dependent rows (time series, groups) and drift are common causes."
            if narrow
            else "Intervals promise less than they could. If the model was fitted without "
            "calibration, fit with it; otherwise use a lower nominal coverage.",
        )


def _regions_of(target: TargetFacts, evaluation: Evaluation) -> list[tuple[str, Region]]:
    found = [("interval width", region) for region in evaluation.by_width]
    if evaluation is target.main:
        found += [(group.feature, one) for group in target.regions for one in group.regions]
    return found


def _off_in_region(
    evaluation: Evaluation, regions: Sequence[tuple[str, Region]]
) -> Iterator[Advice]:
    """The region that is furthest off, if chance does not explain it among so many."""
    off = [
        (abs(region.coverage - LEVEL), feature, region)
        for feature, region in regions
        if abs(region.coverage - LEVEL) >= OFF_IN_REGION
        and _is_real(region.coverage, region.n_rows, LEVEL, len(regions))
    ]
    if not off:
        return
    _, feature, region = max(off, key=lambda one: one[0])
    narrow = region.coverage < LEVEL
    others = f" {len(off) - 1} more regions are off." if len(off) > 1 else ""
    yield Advice(
        "narrow region" if narrow else "wide region",
        True,
        None,
        f"Intervals are too {'narrow' if narrow else 'wide'} in places "
        f"({evaluation.forecast.source})",
        f"Where {feature} is {region.label}, {percent(region.coverage)} of {region.n_rows:,} "
        f"targets lie in their {percent(LEVEL, 0)} interval.{others}",
        "Right on average is not right everywhere. More rows there, or a feature that tells quiet "
        "from noisy rows, would help; until then, read intervals there with care.",
    )


def _on_test_set(target: TargetFacts) -> Iterator[Advice]:
    loo, test = target.loo, target.test
    if loo is None or test is None:
        return
    one, other = loo.forecast, test.forecast
    gap = share_of(one.log_density, one.weight) - float(other.log_density.mean())
    error = np.sqrt(one.log_density.var() / one.n_rows + other.log_density.var() / other.n_rows)
    worse = test.scores.rmse > DRIFT_RMSE * loo.scores.rmse
    if gap > DRIFT_ERRORS * error and worse:
        yield Advice(
            "drift",
            True,
            None,
            "The test set is predicted much worse than training rows",
            f"RMSE {show_number(test.scores.rmse, 3)} on the test set, "
            f"{show_number(loo.scores.rmse, 3)} by leave-one-out. Chance does not explain the "
            "difference.",
            "Test rows come from elsewhere: another period, other groups, other ways of measuring. "
            "Compare their features with those of training; train on rows like those to come.",
        )


def _is_real(share: float, n_rows: int, nominal: float, n_tests: int) -> bool:
    """Whether a share of rows differs from the nominal one beyond chance, in one of n tests."""
    found = binomtest(round(share * n_rows), n_rows, nominal).pvalue
    return bool(found * n_tests < RARE)


def _rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's correlation; 0 if one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a, b).statistic)


def _listed(names: Sequence[str]) -> str:
    shown = [f"“{name}”" for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        return f"{', '.join(shown)} and {len(names) - MOST_NAMES:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _count(names: Sequence[str], noun: str) -> str:
    return _number(len(names), noun)


def _number(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}" if n != 1 else f"One {noun}"


def _verb(names: Sequence[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several
