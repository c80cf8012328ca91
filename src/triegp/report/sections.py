"""The sections about features, regions and rows."""

from __future__ import annotations

from triegp.plots.text import show_number
from triegp.report.effects import Effect, Importance
from triegp.report.facts import LEAST_SHARE, TargetFacts
from triegp.report.figures import effect_figure, effect_limits, pair_figure
from triegp.report.markup import Child, Html, join, tag
from triegp.report.outliers import MANY_OUTLIERS, RowFacts
from triegp.report.regions import FeatureRegions
from triegp.report.words import (
    BAR_HEAD,
    bar_cell,
    cell,
    figures,
    head,
    heading,
    heads,
    number,
    off_cell,
    paragraph,
    percent,
    plural,
    row,
    table,
    tiny,
)

MOST_FEATURES = 20  # in the table of importances
MOST_DEPTHS = 10  # bits shown, coarsest first
# Says where a report finds features of rows.
WHERE_ROWS = " See the last section of this report for how to keep the training rows with a model."
LEAST_COMMON = 0.25  # share of the variance of an effect below which its average needs a word
LEAST_INTERPLAY = 0.01  # share of variance from which on a pair is shown


def importance_section(target: TargetFacts, level: int, name: str) -> Child:
    """Importances by feature, and coarse to fine."""
    shown = target.importances[:MOST_FEATURES]
    smooth = any(feature.smooth > 0 for feature in shown)
    largest = max((feature.share for feature in shown), default=1.0)
    rows = []
    for feature in shown:
        parts = [("smooth", feature.smooth)] if smooth else []
        bits = feature.by_bit[:MOST_DEPTHS]
        parts += [(f"1/{2 ** (k + 1)}", part) for k, part in enumerate(bits)]
        finest = max(max((part for _, part in parts), default=0.0), 1e-9)
        strip = tag(
            "span",
            [
                tag(
                    "span",
                    class_="smooth" if label == "smooth" else None,
                    style=f"--o:{100 * max(part, 0.0) / finest:.0f}%",
                    title=f"{label}: {percent(max(part, 0.0))}",
                )
                for label, part in parts
            ],
            class_="strip",
            role="img",
            aria_label=_describe_scale(parts),
        )
        rows.append(
            row(
                feature.label,
                cell(percent(max(feature.share, 0.0)), value=feature.share),
                bar_cell(max(feature.share, 0.0) / max(largest, 1e-9)),
                cell(strip, class_=None),
            )
        )
    more = len(target.importances) - len(shown)
    scale = (
        "The last column shows at which scale a feature acts: "
        + ("the disc is the smooth part; " if smooth else "")
        + "squares go from coarse (does it matter in which half of its range the feature lies?) to "
        "fine (which quarter, eighth, and so on). Stronger is more, relative to the feature itself."
    )
    return join(
        paragraph(
            "How much of what the model explains is due to each feature, as a share of the "
            "explained variance. This describes the model, not cause and effect.",
        ),
        table(
            scale,
            heads("Feature", "Share", BAR_HEAD, head("Coarse to fine", class_=None)),
            rows,
            label=f"Importance of features for {target.name}",
        ),
        paragraph(f"{plural(more, 'more feature')} with smaller shares.", class_="note")
        if more > 0
        else None,
    )


def effects_section(target: TargetFacts, level: int, name: str) -> Child:
    """Predictions along the most important features, and along the strongest pair."""
    if not target.effects:
        return paragraph(
            "Effects need rows to average over; this model does not hold its training rows, and no "
            "test set was passed.",
            WHERE_ROWS,
            class_="quiet",
        )
    limits = effect_limits(target.effects)
    features = {importance.feature: importance for importance in target.importances}
    pictures = [
        (
            effect_figure(effect, target.name, f"{name}-effect{k}", limits),
            _effect_caption(effect, features[effect.axis.feature]),
        )
        for k, effect in enumerate(target.effects)
    ]
    pair = target.pair
    joint: Child = None
    if pair is not None and pair.interplay >= LEAST_INTERPLAY:
        first, second = pair.axes
        joint = join(
            heading(level + 1, "Two features together"),
            figures(
                (
                    pair_figure(pair, target.name, f"{name}-pair"),
                    join(tag("b", f"{first.label} and {second.label}"), ". The effect of one "
                    f"depends on the other: {percent(pair.interplay, 0)} of the variance of this "
                    "map is not a sum of two separate effects."),
                )
            ),
        )  # fmt: skip
    return join(
        paragraph(
            "The prediction if one feature is set to a value and all others stay as they are, "
            "averaged over rows. The band holds the underlying function of a single row with a "
            "probability of 90\u202f%, without noise (if the target is transformed, the mean of "
            "the target given that function); the average itself is known better. Ticks at "
            "the bottom show where rows are: 20 equal parts lie between them. All figures "
            "have the same scale.",
            " Of times, trend, season, day of the week and hour are shown apart, as far as there "
            "are rows to tell them apart: one of them is set, the others stay."
            if any(effect.axis.calendar is not None for effect in target.effects)
            else None,
        ),
        figures(*pictures),
        joint,
    )


def _effect_caption(effect: Effect, feature: Importance) -> Html:
    """Name and share of the feature, and whether the average hides interactions."""
    said = f", {percent(max(feature.share, 0.0))} of the explained variance"
    if effect.axis.label != feature.label:
        said += f", all parts of {feature.label} together"
    if effect.common < LEAST_COMMON and feature.share >= LEAST_SHARE:
        said += (
            ". Mostly interaction: the effect depends on other features and cancels in this "
            f"average, which has {percent(effect.common, 0)} of its variance"
        )
    return join(tag("b", effect.axis.label), f"{said}.")


def regions_section(target: TargetFacts, level: int, name: str) -> Child:
    """Where intervals are wide and narrow."""
    if target.regions is None:
        return paragraph("The features of the rows are not known.", WHERE_ROWS, class_="quiet")
    if not target.regions:
        return paragraph("There are too few rows to tell.", class_="quiet")
    first = target.regions[0]
    ordered = sorted(first.regions, key=lambda region: region.width)
    narrow, wide = ordered[0], ordered[-1]
    return join(
        paragraph(
            "The width of a 90\u202f% interval says how uncertain a prediction is. It differs most "
            "along the features below. ",
            tag("b", first.feature),
            f" tells most: intervals are {number(narrow.width)} wide on average where it is "
            f"{narrow.label}, and {number(wide.width)} where it is {wide.label}.",
        ),
        [_regions_table(group) for group in target.regions],
    )


def _regions_table(group: FeatureRegions) -> Html:
    widest = max(region.width for region in group.regions)
    rows = [
        row(
            region.label,
            cell(f"{region.n_rows:,}", class_="num only-wide"),
            cell(number(region.width)),
            bar_cell(region.width / widest if widest > 0 else 0.0),
            cell(number(region.error)),
            off_cell(region.coverage, region.is_off),
        )
        for region in group.regions
    ]
    return table(
        join(
            "By ",
            tag("b", group.feature),
            ": mean width of 90\u202f% intervals, mean absolute error, and share of "
            "targets inside.",
        ),
        heads(
            group.feature,
            head("Rows", class_="num only-wide"),
            "Width",
            BAR_HEAD,
            "Error",
            "Inside",
        ),
        rows,
        label=f"Width of intervals by {group.feature}",
    )


def rows_section(target: TargetFacts, level: int, name: str) -> Child:
    """Worst-predicted rows, and rows that look like outliers."""
    main = target.main
    if main is None:
        return paragraph("Single rows are not known.", class_="quiet")
    source = main.source
    n_rows = main.forecast.n_rows
    if target.outliers:
        many = target.n_outliers > MANY_OUTLIERS * n_rows
        said = (
            f"Further from the prediction than noise explains: {plural(target.n_outliers, 'row')} "
            f"of {n_rows:,}. "
            + ("So many point to noise with long tails. " if many else "")
            + "“By chance” is how many rows Gaussian noise would put as far out in a table of "
            "this size; below 0.05, a row is listed."
        )
        outliers: Child = join(
            paragraph(said),
            _rows_table(
                target.outliers, f"Furthest out, by {source}", "Rows that look like outliers"
            ),
        )
    else:
        outliers = paragraph(
            f"None: no row of {n_rows:,} is further from its prediction than Gaussian noise would "
            "put one by chance."
        )
    return join(
        heading(level + 1, "Rows that look like outliers"),
        outliers,
        heading(level + 1, "Rows with the largest errors"),
        paragraph(
            "Large errors are no fault where noise is large. The column z is the distance from the "
            "median of the row's distribution, in deviations of its core: those of a Gaussian with "
            "the same quartiles, which long tails do not enlarge."
        ),
        _rows_table(target.worst, f"Largest errors, by {source}", "Rows with the largest errors"),
    )


def _rows_table(rows: tuple[RowFacts, ...], caption: str, label: str) -> Html:
    unusual = any(facts.unusual for facts in rows)
    titles = heads("Row", "Target", "Predicted", "90\u202f% interval", "z", "By chance")
    note = ". Rows are counted from 0."
    if unusual:
        titles.append(head("Unusual values", class_=None))
        note += " Unusual values: those that few rows have or exceed, with their share."
    body = []
    for facts in rows:
        cells = [
            cell(show_number(facts.y, 5), value=facts.y),
            cell(number(facts.mean, 4), value=facts.mean),
            cell(
                f"{number(facts.low, 4)} to {number(facts.high, 4)}", value=facts.high - facts.low
            ),
            cell(number(facts.z, 3), value=facts.z),
            cell(tiny(facts.expected), value=facts.expected),
        ]
        if unusual:
            values = [
                tag(
                    "span", f"{name} = {value} ", tag("span", f"({percent(share)})", class_="quiet")
                )
                for name, value, share in facts.unusual
            ]
            cells.append(tag("td", tag("span", values, class_="chips")))
        body.append(row(f"{facts.row}", *cells, value=str(facts.row)))
    return table(caption + note, titles, body, label=label, sortable=True)


def _describe_scale(parts: list[tuple[str, float]]) -> str:
    said = [f"{label} {percent(part)}" for label, part in parts if part >= 0.001]
    return ", ".join(said) if said else "nothing"
