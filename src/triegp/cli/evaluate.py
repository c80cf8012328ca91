"""`triegp evaluate`: scores of a model on rows whose targets are known."""

from __future__ import annotations

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.options import batch_option, reading_options
from triegp.cli.sources import Dialect, find_sources


@click.command("evaluate")
@click.argument("model", metavar="MODEL")
@click.argument("data", metavar="DATA...", nargs=-1, required=True)
@click.option("--target", required=True, metavar="NAME", help="Column of the targets.")
@batch_option
@reading_options
@console_options
@click.pass_obj
def command(
    console: Console,
    model: str,
    data: tuple[str, ...],
    target: str,
    batch_rows: int,
    dialect: Dialect,
) -> None:
    """Score the predictions of a model for the rows of DATA.

    Shows R2, RMSE and MAE of the mean; the negative log likelihood (NLL) and CRPS of the predicted
    distributions, lower is better; and which share of the targets lies in 50 % and 90 % intervals.
    """
    from triegp.cli.models import open_model, read_chunks
    from triegp.cli.scores import COVERAGES, first_target, score_facts, show_scores
    from triegp.metrics.forecasts import make_forecast
    from triegp.metrics.summary import Tally

    sources = find_sources(data, dialect)
    estimator = open_model(model)
    tally, n_rows = Tally(), 0
    for chunk in read_chunks(estimator, sources, dialect, [target], batch_rows):
        y = chunk.numbers(target)
        distribution = first_target(estimator.predict_distribution(chunk.features))
        tally.add(make_forecast(y, distribution, coverages=COVERAGES))
        n_rows += chunk.n_rows
        console.progress(f"{n_rows:,} rows scored")
    console.progress("")
    scores = score_facts(tally.scores())
    lines = [f"{n_rows:,} rows", *(f"  {line}" for line in show_scores(scores))]
    console.result({"model": model, **scores}, *lines)
