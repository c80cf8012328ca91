"""`triegp fit`: train a model on the rows of files."""

from __future__ import annotations

import time
from typing import Any

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.failures import CommandError
from triegp.cli.options import names_of, parameters_of, reading_options
from triegp.cli.report import make_report
from triegp.cli.sources import Dialect, find_sources, is_same, refuse_same


@click.command("fit")
@click.argument("data", metavar="DATA...", nargs=-1, required=True)
@click.option("--target", required=True, metavar="NAME", help="Column to predict.")
@click.option("-o", "--output", required=True, help="Model file, for example model.tgp.")
@click.option(
    "--estimator",
    type=click.Choice(["trie", "mixture"]),
    default="trie",
    show_default=True,
    help="TrieGPRegressor, or BinaryTreeGPRegressor: quicker, and for more rows.",
)
@click.option(
    "--features", multiple=True, callback=names_of, metavar="NAMES", help="Columns to learn from."
)
@click.option(
    "--drop", multiple=True, callback=names_of, metavar="NAMES", help="Columns to leave out."
)
@click.option(
    "--categorical",
    multiple=True,
    callback=names_of,
    metavar="NAMES",
    help="Columns that are categories although they look like numbers.",
)
@click.option("--weight", metavar="NAME", help="Column of sample weights.")
@click.option("--noise", metavar="NAME", help="Column of known noise variances of the target.")
@click.option(
    "--target-transform", metavar="NAME", help="identity, log, yeo-johnson, quantile, auto."
)
@click.option("--time-budget", type=float, metavar="SECONDS", help="Limit of the time to fit.")
@click.option("--random-state", "--seed", "seed", type=int, default=0, show_default=True)
@click.option("--jobs", type=int, help="Threads.  [all cores]")
@click.option(
    "--param",
    multiple=True,
    callback=parameters_of,
    metavar="NAME=VALUE",
    help="Any other parameter of the estimator.",
)
@click.option(
    "--keep-rows/--no-keep-rows",
    default=None,
    help="Store the training rows in the file, for reports and updates.  [if the model has them]",
)
@click.option("--report", metavar="FILE", help="Write a report, an HTML file, too.")
@reading_options
@console_options
@click.pass_obj
def command(
    console: Console,
    data: tuple[str, ...],
    target: str,
    output: str,
    estimator: str,
    features: list[str],
    drop: list[str],
    categorical: list[str],
    weight: str | None,
    noise: str | None,
    target_transform: str | None,
    time_budget: float | None,
    seed: int,
    jobs: int | None,
    param: dict[str, Any],
    keep_rows: bool | None,
    report: str | None,
    dialect: Dialect,
) -> None:
    """Train a model on the rows of DATA and write it to a file.

    DATA are CSV, Parquet or Arrow files, patterns, or folders of such files. All columns but the
    target, weight and noise are features, unless --features or --drop says otherwise. Lists of
    names have commas. The summary shows how each column was read, and leave-one-out scores.
    """
    from triegp.cli.scores import loo_scores
    from triegp.cli.training import Task, fit_model, new_estimator
    from triegp.cli.writing import check_output, save_model

    sources = find_sources(data, dialect)
    for path in (output, report):
        if path is not None:
            check_output(path)
            refuse_same(path, sources)
    if report is not None and is_same(report, output):
        raise CommandError(f"--report: {report} is the model file of -o, expected another file")
    options = {"target_transform": target_transform, "time_budget": time_budget, "n_jobs": jobs}
    options = {name: value for name, value in options.items() if value is not None}
    options |= {"random_state": seed, "verbose": int(console.shows_progress)}
    task = Task(target, tuple(features), tuple(drop), tuple(categorical), weight, noise)
    model = new_estimator(estimator, options, param)
    began = time.monotonic()
    row_weights = fit_model(model, sources, dialect, task, console)
    has_rows = model.rows_ is not None  # unless rows were read in pieces, or by --param
    save_model(model, output, training_data=has_rows if keep_rows is None else keep_rows)
    console.detail(f"written to {output}")
    if report is not None:
        make_report(model, report, target)
        console.detail(f"report written to {report}")
    console.detail("leave-one-out scores")
    scores = loo_scores(model, row_weights)
    show_fit(scores, output, report, console, time.monotonic() - began)


def show_fit(
    scores: dict[str, Any], output: str, report: str | None, console: Console, seconds: float
) -> None:
    """Show what was fitted, and how good it is by leave-one-out."""
    from triegp.cli.info import describe_model, show_features
    from triegp.cli.scores import show_scores
    from triegp.files.container import read_header

    facts = describe_model(output, read_header(output))
    lines = [
        f"{facts['estimator']} fitted to {facts['rows']:,} rows in {facts['fit_seconds']:.1f} s",
        *show_features(facts["features"]),
        "  leave-one-out",
        *(f"    {line}" for line in show_scores(scores)),
        f"written to {output}" + (f", report to {report}" if report else ""),
    ]
    facts |= {"seconds": seconds, "leave_one_out": scores, "report": report}
    console.result(facts, *lines)
