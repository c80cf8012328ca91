"""`triegp predict`: predictions for the rows of files, batch by batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.failures import CommandError
from triegp.cli.options import batch_option, levels_of, names_of, reading_options
from triegp.cli.sources import FORMATS, Dialect, find_sources, refuse_same

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@click.command("predict")
@click.argument("model", metavar="MODEL")
@click.argument("data", metavar="DATA...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="File of the predictions; '-' for stdout.")
@click.option("--quantiles", callback=levels_of, help="Quantiles to add, such as 0.05,0.5,0.95.")
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Coverage of an interval to add, such as 0.9.",
)
@click.option("--latent", is_flag=True, help="Describe the function, without noise.")
@click.option("--mean-only", is_flag=True, help="Leave the standard deviation out; quicker.")
@click.option(
    "--keep", multiple=True, callback=names_of, metavar="NAMES", help="Columns to copy from DATA."
)
@click.option(
    "--output-format", type=click.Choice(FORMATS), help="Format of the output.  [by extension]"
)
@batch_option
@reading_options
@console_options
@click.pass_obj
def command(
    console: Console,
    model: str,
    data: tuple[str, ...],
    output: str,
    quantiles: list[float],
    interval: float | None,
    latent: bool,
    mean_only: bool,
    keep: list[str],
    output_format: str | None,
    batch_rows: int,
    dialect: Dialect,
) -> None:
    """Predict the rows of DATA with a model.

    Writes one row per row of DATA: its kept columns, the mean, the standard deviation `std`, then
    `low` and `high` of an interval and quantiles such as `q0.05`. DATA are files, patterns or
    folders, of which batches of rows are in memory at a time. The output replaces an existing file
    when it is complete. Standard output cannot be taken back: after an error, what was written is
    not all.
    """
    import pyarrow as pa

    from triegp.cli import writing
    from triegp.cli.cells import plain_column
    from triegp.cli.models import open_model, read_chunks

    began = time.monotonic()
    if console.as_json and output == "-":
        raise CommandError("--json and predictions cannot both go to standard output")
    sources = find_sources(data, dialect)
    format_ = writing.output_format(output, output_format)
    writing.check_output(output, piped=True)
    refuse_same(output, sources, model)
    names = ["mean", *([] if mean_only else ["std"]), *(["low", "high"] if interval else [])]
    names += [f"q{level!r}" for level in quantiles]
    for name in keep:
        if name in names:
            raise CommandError(f"--keep: {name!r} is the name of a column of the predictions")
    estimator = open_model(model)
    delimiter = dialect.delimiter or ("\t" if output.lower().endswith((".tsv", ".tab")) else ",")
    n_rows, writer, schema, all_names = 0, None, None, [*keep, *names]
    wanted = (quantiles, interval, latent, mean_only)
    with writing.open_output(output) as file:
        for chunk in read_chunks(estimator, sources, dialect, keep, batch_rows):
            kept = map(plain_column, chunk.table.select(keep).columns)
            predicted = predict_batch(estimator, chunk.features, *wanted)
            table = pa.table([*kept, *predicted], all_names)
            with writing.naming_output(output):
                if writer is None:
                    schema, piped = table.schema, output == "-"
                    writer = writing.new_writer(format_, file, schema, delimiter, piped=piped)
                writer.write_table(table.cast(schema))
            n_rows += chunk.n_rows
            console.progress(f"{n_rows:,} rows predicted")
        assert writer is not None
        writer.close()
    console.progress("")
    seconds = time.monotonic() - began
    facts = {"output": output, "rows": n_rows, "columns": all_names, "seconds": seconds}
    where = "standard output" if output == "-" else output
    text = f"{n_rows:,} rows predicted in {seconds:.1f} s, written to {where}"
    if output == "-":
        console.note(text)
    else:
        console.result(facts, text)


def predict_batch(
    estimator: Any,
    X: Any,
    quantiles: list[float],
    interval: float | None,
    latent: bool,
    mean_only: bool,
) -> list[npt.NDArray[np.float64]]:
    """Columns of the predictions, (n,) each: mean, deviation, interval, quantiles."""
    from triegp.cli.scores import first_target

    if not quantiles and interval is None:
        if mean_only:
            return [estimator.predict(X, latent=latent).reshape(-1)]
        both = estimator.predict(X, return_std=True, latent=latent)
        return [part.reshape(-1) for part in both]
    distribution = first_target(estimator.predict_distribution(X, latent=latent))
    columns = [distribution.mean()] if mean_only else [distribution.mean(), distribution.std()]
    if interval is not None:
        columns += list(distribution.interval(interval).T)
    return [*columns, *(distribution.quantile(quantiles).T if quantiles else ())]
