"""The group of commands: which there are, options of all of them, and how they end."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click

import triegp
from triegp.cli.console import Console
from triegp.cli.failures import describe

Function = TypeVar("Function", bound=Callable[..., Any])

COMMANDS = ("fit", "predict", "evaluate", "update", "report", "info")
BAD_INPUT, BUG, INTERRUPTED, BROKEN_PIPE, TERMINATED = 2, 1, 130, 141, 143


class Commands(click.Group):
    """Commands that are imported when they are asked for; every error is one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of this name, `command` of its module."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"triegp.cli.{name}").command
        return command

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run a command and exit: 0, 2 for bad input, 130 after Ctrl-C."""
        console = Console()
        extra = {name: extra[name] for name in extra if name not in ("prog_name", "obj")}
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name="triegp", obj=console, **extra)
        except click.ClickException as error:
            place = getattr(error, "ctx", None)
            name = "triegp" if place is None else place.command_path
            console.fail(f"{error.format_message()} (see {name} --help)")
            code = BAD_INPUT
        except click.Abort:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it raises becomes one line and an exit code."""
        console: Console = ctx.obj
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: console.warn(message)
            try:
                super().invoke(ctx)
                sys.stdout.flush()
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except BrokenPipeError:
                _drop_output()
                raise click.exceptions.Exit(BROKEN_PIPE) from None
            except (KeyboardInterrupt, InterruptedError):
                console.progress("")
                console.fail("interrupted")
                raise click.exceptions.Exit(INTERRUPTED) from None
            except Exception as error:
                console.progress("")
                if console.debug:
                    console.show_traceback()
                text, expected = describe(error)
                console.fail(text)
                raise click.exceptions.Exit(BAD_INPUT if expected else BUG) from None


def console_options(function: Function) -> Function:
    """Options of all commands, which may also stand before the command."""

    def set_field(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.obj, str(parameter.name), True)

    options = [
        (("as_json", "--json"), "Print one JSON object on standard output."),
        (("quiet", "-q", "--quiet"), "Show errors only."),
        (("verbose", "-v", "--verbose"), "Show the steps."),
        (("debug", "--debug"), "Show tracebacks of errors."),
    ]
    for names, text in reversed(options):
        function = click.option(
            *names, is_flag=True, expose_value=False, callback=set_field, help=text
        )(function)
    return function


def _drop_output() -> None:
    """Send what is left to the void: nobody reads it, and Python would complain at exit."""
    with suppress(OSError, ValueError):
        void = os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, sys.stdout.fileno())


def run() -> NoReturn:
    """Run the command as a process of its own.

    SIGTERM is an exception, so that files that are not complete are removed. After a signal the
    process ends without waiting for threads: one of pyarrow may still read a pipe that stalls.
    """

    def end(number: int, frame: Any) -> None:
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
    for name in ("stdout", "stderr"):  # None in a process that has none
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf8"))  # noqa: SIM115
    try:
        app.main()
    except SystemExit as stopped:
        if stopped.code in (INTERRUPTED, TERMINATED):
            sys.stderr.flush()
            os._exit(stopped.code)
        raise


HELP = """Gaussian-process regression with honest error bars, from files to files.

\b
  triegp fit train.csv --target price -o model.tgp
  triegp predict model.tgp new.csv --interval 0.9 -o predictions.csv
  triegp report model.tgp -o report.html

Data are CSV, Parquet or Arrow files; "-" is standard input or output.
"""  # the character \\b keeps line breaks of a paragraph


@click.command(
    cls=Commands,
    help=HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(triegp.__version__, prog_name="triegp")
@console_options
@click.pass_context
def app(ctx: click.Context) -> None:
    """Show the help if no command is given."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
