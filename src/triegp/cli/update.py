"""`triegp update`: add rows to a model."""

from __future__ import annotations

import time

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.options import batch_option, reading_options
from triegp.cli.sources import Dialect, find_sources, refuse_same


@click.command("update")
@click.argument("model", metavar="MODEL")
@click.argument("data", metavar="DATA...", nargs=-1, required=True)
@click.option("--target", required=True, metavar="NAME", help="Column of the targets.")
@click.option("--weight", metavar="NAME", help="Column of sample weights.")
@click.option("--noise", metavar="NAME", help="Column of known noise variances of the target.")
@click.option("-o", "--output", help="The new model file.  [replaces MODEL]")
@batch_option
@reading_options
@console_options
@click.pass_obj
def command(
    console: Console,
    model: str,
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    noise: str | None,
    output: str | None,
    batch_rows: int,
    dialect: Dialect,
) -> None:
    """Add the rows of DATA to a model, without training again.

    The model file is replaced in one step when all rows are added. A file with training rows (all
    but those of fit --no-keep-rows) keeps them, and is fitted anew when its rows have doubled or
    left the training box.
    """
    from triegp.cli.models import open_model, read_chunks
    from triegp.cli.writing import check_output, save_model

    began, output = time.monotonic(), output or model
    sources = find_sources(data, dialect)
    check_output(output)
    refuse_same(output, sources)
    estimator, n_rows = open_model(model), 0
    keeps_rows = estimator.rows_ is not None
    others = [name for name in (target, weight, noise) if name is not None]
    evaluations, fit_seconds = estimator.n_evaluations_, estimator.fit_seconds_
    for chunk in read_chunks(estimator, sources, dialect, others, batch_rows):
        y, extra = chunk.numbers(target), {}
        if weight is not None:
            extra["sample_weight"] = chunk.numbers(weight, "weight")
        if noise is not None:
            extra["known_noise"] = chunk.numbers(noise, "noise variance")
        y = y if estimator.one_dimensional_ else y[:, None]
        estimator.partial_fit(chunk.features, y, **extra)
        n_rows += chunk.n_rows
        console.progress(f"{n_rows:,} rows added")
    console.progress("")
    save_model(estimator, output, training_data=keeps_rows)
    anew = (estimator.n_evaluations_, estimator.fit_seconds_) != (evaluations, fit_seconds)
    seconds = time.monotonic() - began
    facts = {"model": output, "rows_added": n_rows, "fitted_anew": anew, "seconds": seconds}
    text = f"{n_rows:,} rows added in {seconds:.1f} s"
    text += ", and the model was fitted anew" if anew else ""
    console.result(facts, f"{text}; written to {output}")
