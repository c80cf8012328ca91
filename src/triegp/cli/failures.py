"""What goes wrong, in one line."""

from __future__ import annotations

import errno
import os

PACKAGES = ("pyarrow", "matplotlib")  # of the extra `cli`


class CommandError(Exception):
    """Bad input or output: one line that names the place."""


def one_line(text: object) -> str:
    """Text without line breaks and runs of blanks."""
    return " ".join(str(text).split())


def printable(text: str) -> str:
    """Text with all that is no letter, sign or blank as its escape sequence in Python.

    Names and values are a stranger's: they must not move the cursor, set colours or forge lines.
    """
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


def describe(error: Exception) -> tuple[str, bool]:
    """An exception in one line, and whether it is one that users cause.

    The library raises ValueError, TypeError and RuntimeError for bad parameters and data, and says
    in the message which, but not always where.
    """
    if isinstance(error, CommandError):
        return one_line(error), True
    if isinstance(error, ModuleNotFoundError) and error.name in PACKAGES:
        return f"this needs {error.name}: pip install 'triegp[cli]'", True
    if isinstance(error, MemoryError):
        return f"not enough memory: {one_line(error) or 'an array could not be allocated'}", True
    if isinstance(error, OSError):
        return describe_os(error), True
    if isinstance(error, ValueError | TypeError | RuntimeError) and not isinstance(
        error, NotImplementedError | RecursionError | UnicodeError
    ):
        from triegp.files.container import ModelFileError

        known = isinstance(error, ModelFileError)
        return one_line(error) + ("" if known else " (--debug shows where)"), True
    return f"unexpected {type(error).__name__}: {one_line(error)} (--debug shows where)", False


def describe_os(error: OSError, name: str | None = None) -> str:
    """An error of the operating system with the name of the file, if it is known."""
    named = name if error.filename is None else os.fsdecode(error.filename)
    if error.errno is None:
        return one_line(error) if named is None else f"{named}: {one_line(error)}"
    said = "no space left on device" if error.errno == errno.ENOSPC else os.strerror(error.errno)
    said = said[:1].lower() + said[1:]
    return said if named is None else f"{named}: {said}"
