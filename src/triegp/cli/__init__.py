"""The command `triegp`: fit, predict, evaluate, update, report and info on files.

All work is done by the library; a command reads files, calls it and writes what it returns. Nothing
heavy is imported before a command runs, so that `triegp --help` starts in a fraction of a second.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    try:
        import click  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print("triegp: the command needs click: pip install 'triegp[cli]'", file=sys.stderr)
        sys.exit(2)
    from triegp.cli.app import run

    run()
