"""What a command tells people on stderr, and machines on stdout; all text passes here."""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from triegp.cli.failures import one_line, printable


@dataclass
class Console:
    """How much a command says, and in which form.

    Attributes
    ----------
    as_json : bool
        Whether the result is one JSON object on stdout.
    quiet : bool
        Whether only errors, and the JSON object, are shown.
    verbose : bool
        Whether steps are shown.
    debug : bool
        Whether errors show a traceback.
    warnings : list of str
        What was warned about, each once; part of the JSON object.
    """

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def shows_progress(self) -> bool:
        """Whether there is a person who looks at stderr."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Show a line on stderr, unless quiet."""
        if not self.quiet:
            click.echo(printable(text), err=True)

    def detail(self, text: str) -> None:
        """Show a step on stderr, if verbose."""
        if self.verbose:
            click.echo(printable(text), err=True)

    def warn(self, text: object) -> None:
        """Show a warning on stderr, once."""
        line = one_line(text)
        if line not in self.warnings:
            self.warnings.append(line)
            self.note(f"triegp: warning: {line}")

    def progress(self, text: str) -> None:
        """Replace the line of progress on stderr, if it is a terminal; "" ends it."""
        if self.shows_progress:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    def fail(self, text: str) -> None:
        """Show an error in one line on stderr."""
        click.echo(f"triegp: {printable(one_line(text))}", err=True)

    def show_traceback(self) -> None:
        """Show where the exception that is being handled came from, on stderr."""
        for line in traceback.format_exc().split("\n"):
            click.echo(printable(line), err=True)

    def result(self, facts: Mapping[str, Any], *lines: str) -> None:
        """Show the result on stdout: facts as one JSON object, or lines for people."""
        if self.as_json:
            whole = {**facts, "warnings": self.warnings}
            click.echo(json.dumps(plain(whole), allow_nan=False))
        elif not self.quiet:
            click.echo("\n".join(map(printable, lines)))


def plain(value: Any) -> Any:
    """A value as JSON can hold it; numbers that are not finite become null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
