"""`triegp demo`: a tour on data that it makes itself."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.failures import CommandError


@click.command("demo")
@click.option("--rows", type=click.IntRange(min=100), default=20_000, show_default=True)
@click.option(
    "-o", "--output", default="triegp-demo", show_default=True, help="Folder that files go to."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of data and model.")
@console_options
@click.pass_obj
def command(console: Console, rows: int, output: str, seed: int) -> None:
    """Make data, fit a model, score it beside baselines, and write all files to a folder.

    The data are delays of made-up trains: a daily rhythm, steps between lines, gaps, and noise that
    differs from hour to hour. Up to 20,000 rows TrieGPRegressor is fitted; more rows are for
    BinaryTreeGPRegressor. The model is scored on rows that it has not seen.
    """
    from triegp.cli.tour import take_tour

    try:
        os.makedirs(output, exist_ok=True)
    except FileExistsError:
        raise CommandError(f"{output}: is a file, expected a folder") from None
    began = time.monotonic()
    facts = take_tour(rows, output, seed, console)
    facts["seconds"] = time.monotonic() - began
    console.result(facts, *show_tour(facts))


def show_tour(facts: dict[str, Any]) -> list[str]:
    """Lines of the table of scores, and where the files are."""
    names = {"rmse": "RMSE", "nll": "NLL", "crps": "CRPS", "coverage_0.9": "in 90 % interval"}
    files = facts["files"]
    said = [
        f"{facts['estimator']}: {facts['train_rows']:,} rows fitted in "
        f"{facts['fit_seconds']:.1f} s, {facts['test_rows']:,} rows predicted in "
        f"{facts['predict_seconds']:.1f} s",
        "",
        f"{'test rows':<26}" + "".join(f"{name:>18}" for name in names.values()),
    ]
    for label, scores in facts["scores"].items():
        cells = [f"{scores[name]:.4f}" for name in names]
        cells[-1] = f"{100 * scores['coverage_0.9']:.1f} %"
        said.append(f"{label:<26}" + "".join(f"{cell:>18}" for cell in cells))
    loo = facts["leave_one_out"]  # of a model of cells, the NLL only
    left = [f"{names[name]} {loo[name]:.4f}" for name in ("rmse", "nll") if name in loo]
    if "coverage_0.9" in loo:
        left.append(f"{100 * loo['coverage_0.9']:.1f} % in 90 %")
    said += [
        "",
        f"leave-one-out, from the training rows alone: {', '.join(left)}",
        "",
        *(f"{name:<12} {path}" for name, path in files.items()),
        "",
        f"{facts['seconds']:.0f} s in all. Open the report in a browser, or go on with",
        f"  triegp predict {files['model']} {files['test rows']} --interval 0.9 -o -",
    ]
    return said
