"""Advice about training, the data, the target and the errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from triegp.plots.text import show_number
from triegp.report.advice import MOST_NAMES, Advice, counted, either, listed, problem, remark
from triegp.report.facts import Evaluation, Facts, TargetFacts
from triegp.report.outliers import MANY_OUTLIERS
from triegp.report.words import percent, plural

Floats = npt.NDArray[np.float64]

FEW_ROWS = 200  # with fewer, error bars are rough
LEAST_COPIES = 0.01  # share of copies worth a word
LEAST_SHARE = 0.005  # explained variance below which a feature does next to nothing
LEAST_OF_MEAN = 0.1  # the same, relative to the mean share of all features
LEAST_R2 = 0.05  # below which a model explains next to nothing
LEAST_SKEW = 0.2  # of errors, by quantiles
LEAST_TREND = 0.3  # rank correlation of absolute errors and means
FEW_VALUES = 10  # distinct values of a target


def on_training(facts: Facts) -> Iterator[Advice]:
    """How training ended, and whether there were enough rows."""
    fit = facts.fit
    if fit.diverged:
        yield problem(
            "diverged",
            "Training did not converge",
            "The likelihood fell, or linear systems could not be solved. The best parameters found "
            "before are kept.",
            "Look for extreme values in features and target, try another random_state, or a larger "
            "n_trees with a smaller max_iter.",
        )
    if fit.stopped_early:
        yield problem(
            "stopped",
            "Training was stopped early",
            "The time budget or Ctrl-C ended training, or some steps were left out to keep within "
            "the budget.",
            "Raise time_budget, or fit again without it. Accuracy and error bars usually gain.",
        )
    if fit.n_rows < FEW_ROWS:
        yield problem(
            "few rows",
            f"There are few rows, {fit.n_rows:,}",
            "With so few rows, what the model has learned and the error bars are rough; so are the "
            "scores in this report.",
            "Take the intervals beside the scores seriously. More rows help more than any setting.",
        )


def on_data(facts: Facts) -> Iterator[Advice]:
    """Copies, constant features, and test rows outside the training box."""
    fit, outside = facts.fit, facts.outside
    if fit.n_copies >= max(2.0, LEAST_COPIES * fit.n_rows):
        yield problem(
            "copies",
            f"{fit.n_copies:,} rows are copies of others",
            f"{percent(fit.n_copies / fit.n_rows)} of the rows repeat another row with the same "
            "target, or nearly. The model counts each group of copies as one observation.",
            "Find out where they come from: joined tables and repeated records are common causes. "
            "Keep copies out of test sets, or scores will look too good.",
        )
    if fit.constant:
        yield remark(
            "constant",
            f"{counted(fit.constant, 'feature')} never {either(fit.constant, 'changes', 'change')}",
            f"{listed(fit.constant)} {either(fit.constant, 'has', 'have')} the same value in all "
            "training rows.",
            f"Leave {either(fit.constant, 'it', 'them')} out, or check whether the data were "
            "filtered by mistake. Nothing is known about other values.",
        )
    if outside is not None and outside.n_outside > outside.expected + 3 * np.sqrt(
        max(outside.expected, 1.0)
    ):
        yield problem(
            "outside",
            f"{plural(outside.n_outside, 'test row')} outside the training range",
            f"{percent(outside.n_outside / outside.n_rows)} of the test rows have a value beyond "
            "the range of the training rows, or one that training has not seen. Chance would "
            f"explain about {show_number(outside.expected, 2)}.",
            "Predictions there are extrapolations with wide intervals. Train on rows that cover "
            "the range in which the model is used.",
        )


def on_target(target: TargetFacts, facts: Facts) -> Iterator[Advice]:
    """Features that do nothing, odd targets, and errors that could be smaller."""
    main = target.main
    least = min(LEAST_SHARE, LEAST_OF_MEAN / max(len(target.importances), 1))
    idle = [part.label for part in target.importances if part.share < least]
    if idle and len(target.importances) > 1:
        yield remark(
            "idle",
            f"{counted(idle, 'feature')} {either(idle, 'does', 'do')} next to nothing",
            f"{listed(idle)} {either(idle, 'explains', 'explain')} less than "
            f"{percent(least, 2)} of the explained variance{either(idle, '', ' each')}.",
            f"Fit without {either(idle, 'it', 'them')}: the model gets smaller and faster, and "
            "often a little better. Compare the leave-one-out scores.",
        )
    if main is None:
        return
    if target.n_distinct == 1:
        yield problem(
            "constant target",
            "The target never changes",
            f"All rows have the value {show_number(float(main.forecast.y[0]))}.",
            "There is nothing to learn. Check that the right column was chosen as the target.",
        )
        return
    if target.n_distinct is not None and (
        target.n_distinct <= FEW_VALUES and main.forecast.n_rows >= 10 * target.n_distinct
    ):
        yield remark(
            "few values",
            f"The target has {target.n_distinct} distinct values only",
            "The model treats it as a continuous number, so intervals end between the values that "
            "occur.",
            "If the values are classes, a classifier suits them better. If they are counts or "
            "grades, read predictions as averages.",
        )
    if main.scores.r2 < LEAST_R2:
        yield problem(
            "no signal",
            "The features explain next to nothing",
            f"By {main.source}, the share of variance explained is "
            f"{percent(max(main.scores.r2, 0.0))}: hardly better than predicting the mean.",
            "Look for features that relate to the target. Check that rows of features and targets "
            "belong together.",
        )
    yield from _on_residuals(target, main, facts)


def _on_residuals(target: TargetFacts, main: Evaluation, facts: Facts) -> Iterator[Advice]:
    forecast = main.forecast
    index = [fitted.name for fitted in facts.fit.targets].index(target.name)
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
            yield remark(
                "skewed",
                "A transform of the target may help",
                reason,
                "Fit with target_transform='auto', which tries several, and compare the "
                "leave-one-out scores.",
            )
    if target.n_outliers and target.n_outliers <= max(3.0, MANY_OUTLIERS * forecast.n_rows):
        shown = ", ".join(str(row.row) for row in target.outliers[:MOST_NAMES])
        yield remark(
            "outliers",
            "One row looks like an outlier"
            if target.n_outliers == 1
            else f"{target.n_outliers:,} rows look like outliers",
            "The target is further from the prediction than noise explains, even among "
            f"{forecast.n_rows:,} rows: row {shown}"
            + (" and others." if target.n_outliers > len(target.outliers[:MOST_NAMES]) else "."),
            "Check these rows for errors of measurement or entry. Correct or remove those that are "
            "wrong, and keep those that are merely rare.",
        )
    elif target.n_outliers:
        yield remark(
            "long tails",
            "Noise has long tails",
            f"{target.n_outliers:,} rows ({percent(target.n_outliers / forecast.n_rows)}) are "
            "further out than Gaussian noise would put any. So many are hardly errors in the data.",
            "Nothing needs to be done if the coverages are right: the intervals allow for it. "
            "Prefer them to the deviation alone.",
        )


def _rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's correlation; 0 if one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a, b).statistic)
