"""The sections about accuracy and calibration."""

from __future__ import annotations

from triegp.metrics.summary import Scores
from triegp.report.facts import Evaluation, TargetFacts
from triegp.report.figures import (
    calibration_figure,
    pit_figure,
    scatter_figure,
    width_figure,
)
from triegp.report.markup import Child, Html, join, tag
from triegp.report.words import (
    cell,
    figures,
    head,
    heading,
    heads,
    number,
    off_cell,
    paragraph,
    percent,
    row,
    table,
)

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
    return [evaluation for evaluation in (target.loo, target.test) if evaluation is not None]


def accuracy_section(target: TargetFacts, level: int, name: str) -> Child:
    """Scores beside the baseline, and observed against predicted values."""
    evaluations = evaluations_of(target)
    if not evaluations:
        return paragraph("There are no rows to judge accuracy by.", class_="quiet")
    titles, rows = list[str](), []
    for evaluation in evaluations:
        titles += [_title(evaluation.source), "baseline"]
    for key, label, meaning in MEANINGS:
        cells = []
        for evaluation in evaluations:
            quiet = "—" if evaluation.baseline is None else _score(evaluation.baseline, key)
            cells += [cell(_score(evaluation.scores, key)), cell(quiet, class_="num quiet")]
        label = join(label, tag("span", f" {meaning}", class_="note only-wide"))
        rows.append(row(label, *cells))
    counted = [f"{part.scores.n_rows:,} rows ({part.source})" for part in evaluations]
    caption = ". Each point is a row. On the dashed line, the prediction is right."
    pictures = [
        (scatter_figure(part, f"{name}-scatter{k}"), join(tag("b", _title(part.source)), caption))
        for k, part in enumerate(evaluations)
    ]
    return join(
        _explain(target),
        table(
            f"{' and '.join(counted)}. The baseline predicts the mean of the training "
            "target everywhere, with its standard deviation.",
            heads("Score", *titles),
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
    for k, evaluation in enumerate(evaluations_of(target)):
        parts += [
            heading(level + 1, _title(evaluation.source)) if target.test else None,
            None if evaluation.is_new else paragraph(TUNED),
            _coverages(evaluation, target.name),
            figures(
                (
                    calibration_figure(evaluation, f"{name}-calibration{k}"),
                    join(tag("b", "Do intervals keep their promise?"), " Above the diagonal they "
                    "are too wide, below too narrow."),
                ),
                (
                    pit_figure(evaluation, f"{name}-pit{k}"),
                    join(tag("b", "Where do targets fall in their distributions?"), " Flat is "
                    "right. A hill: too wide. A bowl: too narrow. A slope: biased."),
                ),
                (
                    width_figure(evaluation, f"{name}-width{k}"),
                    join(tag("b", "Right everywhere, or on average only?"), " Rows in groups, from "
                    "narrow to wide intervals. Marks of a calibrated model lie before the grey "
                    "bars, 19 times in 20."),
                ),
            ),
        ]  # fmt: skip
    return join(*parts)


def _coverages(evaluation: Evaluation, target: str) -> Html:
    rows = [
        row(
            percent(part.nominal, 0),
            off_cell(part.observed, part.is_off),
            cell(f"{percent(part.low)} to {percent(part.high)}", class_="num quiet only-wide"),
            cell(number(part.width)),
        )
        for part in evaluation.scores.coverages
    ]
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
        heads("Promised", "Inside", head("By chance", class_="num only-wide"), "Mean width"),
        rows,
        label=f"Coverage of intervals of {target}, {evaluation.source}",
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
    show = percent if key in ("r2", "calibration_error") else number
    return show(float(getattr(scores, key)))


def _title(source: str) -> str:
    return source[0].upper() + source[1:]
