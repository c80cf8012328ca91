"""The sections about accuracy and calibration."""

from __future__ import annotations

from triegp.report.facts import Evaluation, TargetFacts
from triegp.report.figures import (
    calibration_figure,
    pit_figure,
    scatter_figure,
    width_figure,
)
from triegp.report.markup import Child, Html, join, tag
from triegp.report.scores import Coverage, Scores
from triegp.report.words import cell, figures, head, heading, number, paragraph, percent, table

MEANINGS = (
    ("r2", "Explained variance, R²", "1 is perfect, 0 no better than the mean"),
    ("rmse", "Root mean squared error", "typical error; large errors count more"),
    ("mae", "Mean absolute error", "typical error, in units of the target"),
    ("nll", "Negative log likelihood", "of the whole distribution; lower is better"),
    ("crps", "CRPS", "error of the whole distribution, in units of the target; lower is better"),
    ("calibration_error", "Calibration error", "mean distance of coverages from what they promise"),
)

TUNED = (
    "Error bars were tuned on these rows: noise, scale and tails are learned from predictions "
    "of the same rows, in parts. So this shows whether error bars fit the rows of training; "
    "calibration on new rows is somewhat worse, and a test set shows by how much."
)


def evaluations_of(target: TargetFacts) -> list[Evaluation]:
    """By leave-one-out and of the test set, those that exist."""
    return [one for one in (target.loo, target.test) if one is not None]


def accuracy_section(target: TargetFacts, level: int, name: str) -> Child:
    """Scores beside the baseline, and observed against predicted values."""
    evaluations = evaluations_of(target)
    if not evaluations:
        return paragraph("There are no rows to judge accuracy by.", class_="quiet")
    heads = [head("Score", class_=None)]
    for one in evaluations:
        heads += [head(_title(one.forecast.source)), head("baseline")]
    rows = []
    for key, label, meaning in MEANINGS:
        cells = [tag("th", label, tag("span", f" {meaning}", class_="note only-wide"), scope="row")]
        for one in evaluations:
            cells.append(cell(_score(one.scores, key)))
            quiet = "—" if one.baseline is None else _score(one.baseline, key)
            cells.append(cell(quiet, class_="num quiet"))
        rows.append(tag("tr", cells))
    counted = [f"{one.scores.n_rows:,} rows ({one.forecast.source})" for one in evaluations]
    pictures = [
        (
            scatter_figure(one, f"{name}-scatter{k}"),
            join(tag("b", _title(one.forecast.source)), ". Each point is a row. On the dashed "
            "line, the prediction is right."),
        )
        for k, one in enumerate(evaluations)
    ]  # fmt: skip
    return join(
        _explain(target),
        table(
            f"{' and '.join(counted)}. The baseline predicts the mean of the training "
            "target everywhere, with its standard deviation.",
            heads,
            rows,
            label=f"Scores of {target.name}",
        ),
        figures(*pictures),
    )


def calibration_section(target: TargetFacts, level: int, name: str) -> Child:
    """Coverages, the calibration curve, the PIT histogram and coverage by width."""
    parts: list[Child] = [
        paragraph(
            "A prediction comes with an interval for each probability. A 90\u202f% interval should "
            "contain the target of nine rows in ten: if fewer are inside, the model is too sure; "
            "if more, it is too cautious."
        )
    ]
    for k, one in enumerate(evaluations_of(target)):
        parts += [
            heading(level + 1, _title(one.forecast.source)) if target.test else None,
            None if one.forecast.is_new else paragraph(TUNED),
            _coverages(one, target.name),
            figures(
                (
                    calibration_figure(one, f"{name}-calibration{k}"),
                    join(tag("b", "Do intervals keep their promise?"), " Above the diagonal they "
                    "are too wide, below too narrow."),
                ),
                (
                    pit_figure(one, f"{name}-pit{k}"),
                    join(tag("b", "Where do targets fall in their distributions?"), " Flat is "
                    "right. A hill: too wide. A bowl: too narrow. A slope: biased."),
                ),
                (
                    width_figure(one, f"{name}-width{k}"),
                    join(tag("b", "Right everywhere, or on average only?"), " Rows in groups, from "
                    "narrow to wide intervals. Marks of a calibrated model lie before the grey "
                    "bars, 19 times in 20."),
                ),
            ),
        ]  # fmt: skip
    return join(*parts)


def coverage_at(scores: Scores, nominal: float) -> Coverage:
    """The coverage at one nominal value."""
    return next(one for one in scores.coverages if one.nominal == nominal)


def _coverages(evaluation: Evaluation, target: str) -> Html:
    rows = []
    for one in evaluation.scores.coverages:
        rows.append(
            tag(
                "tr",
                tag("th", percent(one.nominal, 0), scope="row"),
                cell(percent(one.observed), class_="num off" if one.is_off else "num"),
                cell(f"{percent(one.low)} to {percent(one.high)}", class_="num quiet only-wide"),
                cell(number(one.width)),
            )
        )
    return table(
        join(
            f"Central intervals, {evaluation.scores.n_rows:,} rows.",
            tag(
                "span",
                " “By chance” is where the share inside lies 19 times in 20 if intervals are right "
                "and rows independent. Shares beyond it are coloured if they are off by more than "
                "a percentage point.",
                class_="only-wide",
            ),
        ),
        [
            head("Promised", class_=None),
            head("Inside"),
            head("By chance", class_="num only-wide"),
            head("Mean width"),
        ],
        rows,
        label=f"Coverage of intervals of {target}, {evaluation.forecast.source}",
    )


def _explain(target: TargetFacts) -> Html:
    if target.loo is None:
        return paragraph("Scores are those of the test set that was passed.")
    said = (
        "Leave-one-out predicts every training row from all other rows. It needs no hold-out: each "
        "row is a test row once."
    )
    if target.test is not None:
        said += " The test set was never seen in training."
    return paragraph(said)


def _score(scores: Scores, key: str) -> str:
    value = float(getattr(scores, key))
    if key in ("r2", "calibration_error"):
        return percent(value)
    return number(value)


def _title(source: str) -> str:
    return source[0].upper() + source[1:]
