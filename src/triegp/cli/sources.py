"""Which files data are read from, and in which format they are."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from triegp.cli.failures import CommandError

FORMATS = ("csv", "parquet", "arrow")
EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
PACKED = (".gz", ".bz2", ".zst", ".lz4")  # of CSV files
MISSING: tuple[str, ...] = (  # what `pyarrow.csv` reads as missing
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)


@dataclass(frozen=True)
class Dialect:
    """How text is read.

    Attributes
    ----------
    format : str or None
        One of FORMATS for all files; None if their names tell.
    delimiter : str or None
        Between cells; None for a comma, or a tab in .tsv files.
    decimal : str
        Decimal point.
    encoding : str
        Of the text.
    missing : tuple of str
        Text that counts as missing in files of all formats; in CSV files MISSING does, too.
    """

    format: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf8"
    missing: tuple[str, ...] = ()

    def words(self, format_: str) -> tuple[str, ...]:
        """Text that counts as missing in files of a format.

        Parquet and Arrow files mark gaps themselves; "NA" is a value there as any other.
        """
        return (*MISSING, *self.missing) if format_ == "csv" else self.missing


@dataclass(frozen=True)
class Source:
    """A file, or standard input.

    Attributes
    ----------
    path : str
        "-" for standard input.
    format : str
        One of FORMATS.
    delimiter : str
        Between the cells of a CSV file.
    """

    path: str
    format: str
    delimiter: str = ","

    @property
    def is_input(self) -> bool:
        """Whether it is standard input."""
        return self.path == "-"

    @property
    def is_stream(self) -> bool:
        """Whether it can be read once only, from its beginning to its end."""
        return self.is_input or not stat.S_ISREG(os.stat(self.path).st_mode)

    def __str__(self) -> str:
        return "standard input" if self.is_input else self.path


def find_sources(paths: Sequence[str], dialect: Dialect) -> list[Source]:
    """The files that arguments name: files, patterns, folders, and "-".

    A pattern or a folder gives its files in the order of their names. In a folder, files whose
    names begin with a dot or an underscore are skipped.
    """
    sources: list[Source] = []
    for path in paths:
        if path == "-":
            sources.append(_source(path, dialect))
        elif os.path.isdir(path):
            sources += _in_folder(path, dialect)
        elif os.path.exists(path):
            sources.append(_source(path, dialect))
        elif matches := sorted(glob.glob(path)):
            sources += [_source(match, dialect) for match in matches if not os.path.isdir(match)]
        else:
            raise CommandError(f"{path}: there is no such file")
    if sum(source.is_input for source in sources) > 1:
        raise CommandError("standard input can be read once only, got '-' twice")
    return sources


def format_of(path: str) -> str | None:
    """Format of a file by its name, None if it has none of the known extensions."""
    return EXTENSIONS.get(_extension(path))


def refuse_same(output: str, sources: Sequence[Source], model: str | None = None) -> None:
    """Raise CommandError if the output is one of the inputs: data, or the model file."""
    paths = [source.path for source in sources if not source.is_input]
    for path in [*paths, *([] if model is None else [model])]:
        if os.path.isfile(output) and is_same(path, output):
            raise CommandError(f"{output}: the output must not be one of the inputs")


def is_same(path: str, other: str) -> bool:
    """Whether two paths name one file, which need not be there yet."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def _extension(path: str) -> str:
    name, extension = os.path.splitext(path.lower())
    return os.path.splitext(name)[1] if extension in PACKED else extension


def _source(path: str, dialect: Dialect) -> Source:
    kind = dialect.format or format_of(path)
    piped = path == "-" or not os.path.isfile(path)
    if kind is None and piped:
        kind = "csv"
    if kind is None:
        known = ", ".join(EXTENSIONS)
        raise CommandError(f"{path}: unknown extension, expected one of {known}; or pass --format")
    tabbed = _extension(path) in (".tsv", ".tab")
    return Source(path, kind, dialect.delimiter or ("\t" if tabbed else ","))


def _in_folder(path: str, dialect: Dialect) -> list[Source]:
    names = [name for name in sorted(os.listdir(path)) if name[0] not in "._"]
    files = [os.path.join(path, name) for name in names]
    files = [file for file in files if os.path.isfile(file) and (dialect.format or format_of(file))]
    if not files:
        raise CommandError(f"{path}: there are no data files in this folder")
    return [_source(file, dialect) for file in files]
