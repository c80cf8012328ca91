"""`triegp report`: one HTML file about a model."""

from __future__ import annotations

from typing import Any

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.failures import CommandError
from triegp.cli.options import reading_options
from triegp.cli.sources import Dialect, find_sources, refuse_same


@click.command("report")
@click.argument("model", metavar="MODEL")
@click.option("-o", "--output", required=True, help="The report, an HTML file.")
@click.option("--data", multiple=True, metavar="DATA", help="Test rows; may be repeated.")
@click.option("--target", metavar="NAME", help="Name of the target; its column in the test rows.")
@reading_options
@console_options
@click.pass_obj
def command(
    console: Console,
    model: str,
    output: str,
    data: tuple[str, ...],
    target: str | None,
    dialect: Dialect,
) -> None:
    """Write a report about a model: one HTML file for people.

    Without test rows, accuracy and calibration are from leave-one-out. All test rows are read into
    memory.
    """
    from triegp.cli.models import open_model, read_rows
    from triegp.cli.writing import check_output

    if data and target is None:
        raise CommandError("--data needs --target, the column of its targets")
    sources = find_sources(data, dialect)
    check_output(output)
    refuse_same(output, sources, model)
    estimator = open_model(model)
    if target is None or not data:
        n_rows = None
        make_report(estimator, output, target)
    else:
        X, y = read_rows(estimator, sources, dialect, target)
        n_rows = y.size
        make_report(estimator, output, target, X, y)
    facts = {"model": model, "output": output, "test_rows": n_rows}
    console.result(facts, f"report written to {output}")


def make_report(
    model: Any, path: str, target: str | None = None, X: Any = None, y: Any = None
) -> None:
    """Write the report of a fitted estimator, with test rows if they are given.

    target: name of the target, if it is known.
    """
    from triegp.cli.writing import naming_output
    from triegp.report import write_report

    with naming_output(path):
        write_report(model, path, X, y, targets=None if target is None else [target])
