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
    from triegp.cli.batches import read_batches
    from triegp.cli.cells import read_features, read_numbers
    from triegp.cli.failures import CommandError
    from triegp.cli.models import choose_columns, open_model
    from triegp.cli.scores import Tally, show_scores

    sources = find_sources(data, dialect)
    opened = open_model(model)
    tally, n_rows = Tally(), 0
    choose = choose_columns(opened, [target])
    for place, table in read_batches(sources, dialect, choose, batch_rows):
        features = table.select(range(len(opened.columns.kinds)))
        features = read_features(features, opened.columns, place, dialect)
        y = read_numbers(table.column(target), target, place, dialect, "target")
        found = opened.estimator.predict_distribution(features)
        tally.add(y, found[0] if isinstance(found, list) else found)
        n_rows += table.num_rows
        console.progress(f"{n_rows:,} rows scored")
    console.progress("")
    if not n_rows:
        raise CommandError(f"{', '.join(map(str, sources[:3]))}: there are no rows")
    scores = tally.scores()
    lines = [f"{n_rows:,} rows", *(f"  {line}" for line in show_scores(scores))]
    console.result({"model": model, **scores}, *lines)
