"""The page: all facts of a report as one HTML document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from string import Template

from triegp.report.accuracy import accuracy_section, calibration_section
from triegp.report.advice import Advice
from triegp.report.facts import Facts, TargetFacts
from triegp.report.markup import Child, Html, join, tag, text
from triegp.report.sections import (
    effects_section,
    importance_section,
    regions_section,
    rows_section,
)
from triegp.report.words import (
    cell,
    heading,
    heads,
    number,
    paragraph,
    percent,
    plural,
    row,
    seconds,
    table,
)

Section = Callable[[TargetFacts, int, str], Child]

SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("accuracy", "Accuracy", accuracy_section),
    ("calibration", "Calibration", calibration_section),
    ("features", "What matters", importance_section),
    ("effects", "Effects", effects_section),
    ("uncertainty", "Where predictions are uncertain", regions_section),
    ("rows", "Rows to look at", rows_section),
)


def write_page(facts: Facts, advice: Sequence[Advice], title: str) -> str:
    """The whole document."""
    several = len(facts.targets) > 1
    links = [("summary", "In short"), ("advice", "Advice")]
    body: list[Child] = [_summary(facts, advice), _advice(advice)]
    if several:
        for t, target in enumerate(facts.targets):
            links.append((f"target{t}", target.name))
            parts = [heading(2, target.name), _cards(target)]
            for name, words, section in SECTIONS:
                inside = section(target, 3, f"t{t}-{name}")
                parts.append(tag("section", heading(3, words), inside))
            body.append(tag("section", parts, id=f"target{t}"))
    else:
        for name, words, section in SECTIONS:
            links.append((name, words))
            inside = section(facts.targets[0], 2, name)
            body.append(tag("section", heading(2, words), inside, id=name))
    links += [("fit", "What was fitted"), ("reading", "How to read this")]
    body += [_fit(facts), _reading(facts)]
    page = Template(_resource("page.html"))
    return page.substitute(
        title=text(title),
        version=text(facts.fit.version),
        policy=POLICY,
        style=_resource("page.css"),
        script=_resource("page.js"),
        header=_header(facts, title),
        links=join([tag("li", tag("a", words, href=f"#{to}")) for to, words in links]),
        body=join(body),
    )


# Nothing is loaded from anywhere; the style and the script of the page are in it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def _resource(name: str) -> str:
    return files("triegp.report").joinpath(name).read_text(encoding="utf-8")


def _header(facts: Facts, title: str) -> Html:
    fit = facts.fit
    lede = (
        f"A {fit.estimator} fitted to {plural(fit.n_rows, 'row')} of "
        f"{plural(fit.n_features, 'feature')}"
    )
    lede += f" and {plural(len(fit.targets), 'target')}" if len(fit.targets) > 1 else ""
    lede += f", in {seconds(fit.seconds)}." if fit.seconds is not None else "."
    button = tag("button", "Dark", type="button", id="theme", hidden=True)
    kicker = tag("div", tag("p", "Model report", class_="kicker"), button, class_="top")
    return tag("header", kicker, tag("h1", title), tag("p", lede, class_="lede"))


def _summary(facts: Facts, advice: Sequence[Advice]) -> Html:
    serious = [piece for piece in advice if piece.serious]
    if serious:
        n = len(serious)
        verdict = f"{'One thing needs' if n == 1 else f'{n} things need'} attention: "
        listed = "; ".join(map(_in_sentence, serious))
        said = join(verdict, tag("a", listed, href="#advice"), ".")
    else:
        said = text(
            "All is well: predictions and intervals can be trusted as far as the test set tells."
            if any(target.test is not None for target in facts.targets)
            else "Nothing is wrong by leave-one-out. Error bars were tuned on the same rows; a "
            "test set would tell how well they hold on new ones."
        )
        if advice:
            link = tag("a", plural(len(advice), "remark"), href="#advice")
            said = join(said, " ", link, " may help to improve the model or the data.")
    judged = any(target.main is not None for target in facts.targets)
    if not judged and not serious:
        said = text(
            "Accuracy is not known: this model does not hold its rows. Pass a test set to learn it."
        )
    return tag(
        "section",
        tag("h2", "In short"),
        _overview(facts) if len(facts.targets) > 1 else _cards(facts.targets[0]),
        tag("p", said, class_="verdict attention" if serious or not judged else "verdict"),
        id="summary",
    )


def _in_sentence(advice: Advice) -> str:
    title = advice.title[0].lower() + advice.title[1:]
    return title if advice.target is None else f"{advice.target}: {title}"


def _cards(target: TargetFacts) -> Child:
    main = target.main
    if main is None:
        return None
    scores, base = main.scores, main.baseline
    covered = scores.coverage(0.9)
    by = f"by {main.source}"
    against = "" if base is None else f"; {number(base.mae)} without the features"
    cards = [
        ("Explained", percent(scores.r2), f"of the variance of {target.name}, {by}"),
        ("Typical error", number(scores.mae), f"mean absolute error{against}"),
        (
            "Inside 90\u202f% intervals",
            percent(covered.observed),
            f"of the targets; {percent(covered.low)} to {percent(covered.high)} if they are right"
            if main.is_new
            else "of the targets, by leave-one-out, on which error bars were tuned",
        ),
        (
            "Width of 90\u202f% intervals",
            number(covered.width),
            "on average, in units of the target",
        ),
    ]
    shown = []
    for label, value, small in cards:
        parts = tag("dt", label), tag("dd", value, class_="big"), tag("dd", small, class_="small")
        shown.append(tag("div", parts, class_="card"))
    return tag("dl", shown, class_="cards")


def _overview(facts: Facts) -> Html:
    rows = []
    for t, target in enumerate(facts.targets):
        name, main = tag("a", target.name, href=f"#target{t}"), target.main
        if main is None:
            rows.append(row(name, [cell("—") for _ in range(4)]))
            continue
        covered = main.scores.coverage(0.9)
        rows.append(
            row(
                name,
                cell(percent(main.scores.r2), value=main.scores.r2),
                cell(number(main.scores.mae), value=main.scores.mae),
                cell(percent(covered.observed), value=covered.observed),
                cell(number(covered.width), value=covered.width),
            )
        )
    sources = {target.main.source for target in facts.targets if target.main is not None}
    return table(
        f"Scores by {' or '.join(sorted(sources))}." if sources else "Scores are not known.",
        heads("Target", "Explained", "Typical error", "Inside 90\u202f%", "Mean width"),
        rows,
        label="All targets",
        sortable=True,
    )


def _advice(advice: Sequence[Advice]) -> Html:
    items = [
        tag(
            "li",
            tag("span", "Needs attention" if piece.serious else "Remark", class_="flag"),
            tag("h3", join(f"{piece.target}: " if piece.target else None, piece.title)),
            tag("p", piece.reason),
            tag("p", tag("b", "What to do. "), piece.action),
            class_="serious" if piece.serious else None,
        )
        for piece in advice
    ]
    inside: Child = tag("ul", items, class_="advice")
    if not items:
        inside = paragraph("Nothing in the data or the fit calls for a change.")
    return tag("section", tag("h2", "Advice"), inside, id="advice")


def _fit(facts: Facts) -> Html:
    fit = facts.fit
    kinds = ", ".join(f"{n:,} {kind if n == 1 else _plural_kind(kind)}" for kind, n in fit.kinds)
    entries: list[tuple[str, Child]] = [
        ("Estimator", tag("code", fit.estimator)),
        ("Training rows", f"{fit.n_rows:,}"),
        ("Features", f"{fit.n_features:,} ({kinds})"),
        ("Time of the fit", seconds(fit.seconds)),
    ]
    if fit.n_iter is not None:
        entries.append(("Optimiser steps", f"{fit.n_iter:,}"))
    ended = "diverged; the best parameters are kept" if fit.diverged else (
        "stopped early" if fit.stopped_early else "ran to its end"
    )  # fmt: skip
    entries.append(("Training", ended))
    for target in fit.targets:
        prefix = f"{target.name}: " if len(fit.targets) > 1 else ""
        trees = plural(target.n_trees, "tree")
        if target.has_smooth:
            share = percent(target.smooth, 0)
            trees += f" and a smooth part, which has {share} of the explained variance"
        entries.append((f"{prefix}Model", trees))
        entries.append((f"{prefix}Transform", target.transform))
        entries.append(
            (f"{prefix}Noise", f"{percent(target.noise, 2)} of the variance, before calibration")
        )
    entries.append(("Copies among the rows", f"{fit.n_copies:,}"))
    if fit.parameters:
        chips = [tag("code", f"{name}={value}") for name, value in fit.parameters]
        entries.append(("Parameters", tag("span", chips, class_="chips")))
    shown = [(tag("dt", label), tag("dd", value)) for label, value in entries]
    return tag("section", tag("h2", "What was fitted"), tag("dl", shown, class_="facts"), id="fit")


def _reading(facts: Facts) -> Html:
    gaps: Child = None
    if facts.gaps:
        listed = [tag("li", tag("b", gap.what), f": {gap.why}.") for gap in facts.gaps]
        gaps = join(heading(3, "What this report cannot show"), tag("ul", listed))
    if all(target.loo is None for target in facts.targets):
        left_out = "There is no leave-one-out of single rows for this model."
    else:
        left_out = (
            "Given its parameters, leave-one-out is exact for this model: the posterior of each "
            "row given all others is computed, not estimated."
            if facts.fit.exact
            else "With so many rows, leave-one-out is approximate: it takes variances from nearby "
            "rows, and solves where they matter most. Where variances are too large, means are too "
            "far from the targets, too."
        ) + (
            " The parameters have seen all rows, so for few rows the scores are slightly "
            "optimistic. Noise by region, scale and tails are learned from predictions of "
            "the same rows, in parts, so calibration by leave-one-out is partly in-sample: on new "
            "rows it is somewhat worse."
        )
    weights = " Rows count by their sample weights." if facts.weighted else ""
    return tag(
        "section",
        tag("h2", "How to read this"),
        paragraph(left_out, weights),
        paragraph(
            "Scores and intervals assume that rows to come are like those seen, and that rows are "
            "independent. For time series or grouped data, pass a test set from a later period or "
            "from other groups."
        ),
        paragraph(
            "Tables and figures of more than 10,000 rows show a random sample where that makes no "
            "difference to the eye; accuracy, coverage and the search for outliers use all rows."
        ),
        gaps,
        id="reading",
    )


def _plural_kind(kind: str) -> str:
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
