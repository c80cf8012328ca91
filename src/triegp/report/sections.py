"""The sections about features, regions and rows."""

from __future__ import annotations

from triegp.plots.numbers import show_number
from triegp.report.effects import Effect, Importance
from triegp.report.facts import LEAST_SHARE, TargetFacts
from triegp.report.figures import effect_figure, effect_limits, pair_figure
from triegp.report.markup import Child, Html, join, tag
from triegp.report.oddities import MANY_OUTLIERS, OddRow
from triegp.report.regions import FeatureRegions
from triegp.report.words import (
    cell,
    figures,
    head,
    heading,
    number,
    paragraph,
    percent,
    plural,
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
    depth = max((len(one.by_bit) for one in shown), default=0)
    depth = min(depth, MOST_DEPTHS)
    smooth = any(one.smooth > 0 for one in shown)
    largest = max((one.share for one in shown), default=1.0)
    rows = []
    for one in shown:
        width = f"{100 * max(one.share, 0.0) / max(largest, 1e-9):.1f}%"
        parts = [*((("smooth", one.smooth),) if smooth else ())]
        parts += [(f"1/{2 ** (k + 1)}", part) for k, part in enumerate(one.by_bit[:depth])]
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
            tag(
                "tr",
                tag("th", one.label, scope="row"),
                cell(percent(max(one.share, 0.0)), value=one.share),
                cell(tag("span", class_="bar", style=f"--w:{width}"), class_="wide-bar only-wide"),
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
            [
                head("Feature", class_=None),
                head("Share"),
                head(tag("span", "Bar", class_="unseen"), class_="only-wide"),
                head("Coarse to fine", class_=None),
            ],
            rows,
            label=f"Importance of features for {target.name}",
            sortable=False,
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
    features = {one.feature: one for one in target.importances}
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
        one, other = pair.axes
        joint = join(
            heading(level + 1, "Two features together"),
            figures(
                (
                    pair_figure(pair, target.name, f"{name}-pair"),
                    join(tag("b", f"{one.label} and {other.label}"), ". The effect of one depends "
                    f"on the other: {percent(pair.interplay, 0)} of the variance of this map is "
                    "not a sum of two separate effects."),
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
    rows = []
    for region in group.regions:
        width = f"{100 * region.width / widest if widest > 0 else 0:.1f}%"
        rows.append(
            tag(
                "tr",
                tag("th", region.label, scope="row"),
                cell(f"{region.n_rows:,}", class_="num only-wide"),
                cell(number(region.width)),
                cell(tag("span", class_="bar", style=f"--w:{width}"), class_="wide-bar only-wide"),
                cell(number(region.error)),
                cell(percent(region.coverage), class_="num off" if region.is_off else "num"),
            )
        )
    return table(
        join(
            "By ",
            tag("b", group.feature),
            ": mean width of 90\u202f% intervals, mean absolute error, and share of "
            "targets inside.",
        ),
        [
            head(group.feature, class_=None),
            head("Rows", class_="num only-wide"),
            head("Width"),
            head(tag("span", "Bar", class_="unseen"), class_="only-wide"),
            head("Error"),
            head("Inside"),
        ],
        rows,
        label=f"Width of intervals by {group.feature}",
    )


def rows_section(target: TargetFacts, level: int, name: str) -> Child:
    """Worst-predicted rows, and rows that look like outliers."""
    main = target.main
    if main is None:
        return paragraph("Single rows are not known.", class_="quiet")
    source = main.forecast.source
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


def _rows_table(rows: tuple[OddRow, ...], caption: str, label: str) -> Html:
    unusual = any(row.unusual for row in rows)
    heads = [
        head("Row", class_=None),
        head("Target"),
        head("Predicted"),
        head("90\u202f% interval"),
        head("z"),
        head("By chance"),
    ]
    if unusual:
        heads.append(head("Unusual values", class_=None))
    body = []
    for row in rows:
        cells = [
            tag("th", f"{row.row}", scope="row", data_value=str(row.row)),
            cell(show_number(row.y, 5), value=row.y),
            cell(number(row.mean, 4), value=row.mean),
            cell(f"{number(row.low, 4)} to {number(row.high, 4)}", value=row.high - row.low),
            cell(number(row.z, 3), value=row.z),
            cell(tiny(row.expected), value=row.expected),
        ]
        if unusual:
            said = [
                tag(
                    "span",
                    f"{feature} = {value} ",
                    tag("span", f"({percent(share)})", class_="quiet"),
                )
                for feature, value, share in row.unusual
            ]
            cells.append(tag("td", tag("span", said, class_="chips")))
        body.append(tag("tr", cells))
    note = ". Rows are counted from 0." + (
        " Unusual values: those that few rows have or exceed, with their share." if unusual else ""
    )
    return table(caption + note, heads, body, label=label, sortable=True)


def _describe_scale(parts: list[tuple[str, float]]) -> str:
    said = [f"{label} {percent(part)}" for label, part in parts if part >= 0.001]
    return ", ".join(said) if said else "nothing"
