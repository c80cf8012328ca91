"""`triegp info`: what a model file holds."""

from __future__ import annotations

import os
from typing import Any

import click

from triegp.cli.app import console_options
from triegp.cli.console import Console
from triegp.cli.failures import CommandError


@click.command("info")
@click.argument("model", metavar="MODEL")
@console_options
@click.pass_obj
def command(console: Console, model: str) -> None:
    """Show what a model file holds: estimator, rows, columns, parameters.

    Only the header of the file is read, and its digest is not checked; all other commands check it.
    """
    from triegp.files.container import read_header

    header = read_header(model)
    try:
        facts = describe_model(model, header)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"{model} does not hold a complete model: {error!r:.400}") from error
    console.result(facts, *show_model(facts))


def describe_model(path: str, header: dict[str, Any]) -> dict[str, Any]:
    """Facts about a model file, by its header."""
    from triegp.cli.models import columns_of

    columns, model = columns_of(header), header["model"]
    stream = model["stream"]
    names = columns.names or map(str, range(len(columns.kinds)))
    features = [
        {"name": name, "kind": kind, **({"categories": len(listed)} if listed else {})}
        for name, kind, listed in zip(names, columns.kinds, columns.categories, strict=True)
    ]
    return {
        "file": path,
        "bytes": os.path.getsize(path),
        "format_version": header["version"],
        "estimator": header["estimator"],
        "rows": stream["plan"]["n_rows"],
        "has_training_rows": stream["kept"] is not None,
        "fit_seconds": model["fit_seconds"],
        "stopped_early": bool(model["stopped_early"]),
        "named_features": columns.names is not None,
        "features": features,
        "parameters": header["parameters"],
    }


def show_model(facts: dict[str, Any]) -> list[str]:
    """Lines about the model for people."""
    rows, seconds = facts["rows"], facts["fit_seconds"]
    kept = "with" if facts["has_training_rows"] else "without"
    lines = [
        f"{facts['file']}: {facts['estimator']}",
        f"  rows        {'unknown' if rows is None else f'{rows:,}'} ({kept} the rows themselves)",
        f"  fit         {'unknown' if seconds is None else f'{seconds:,.1f} s'}"
        + (", stopped early" if facts["stopped_early"] else ""),
        f"  file        {facts['bytes']:,} bytes, format version {facts['format_version']}",
    ]
    lines += show_features(facts["features"], named=facts["named_features"])
    lines.append(
        "  parameters  " + ", ".join(f"{k}={v!r:.80}" for k, v in facts["parameters"].items())
    )
    return lines


def show_features(features: list[dict[str, Any]], *, named: bool = True) -> list[str]:
    """Lines about the columns: what each was read as."""
    width = max(len(feature["name"]) for feature in features)
    lines = [f"  columns     {len(features)}" + ("" if named else ", known by place")]
    for feature in features:
        listed = f", {feature['categories']:,} values" if "categories" in feature else ""
        lines.append(f"    {feature['name']:<{width}}  {feature['kind']}{listed}")
    return lines
