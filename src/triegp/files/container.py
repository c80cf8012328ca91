"""Model files: one safetensors file with a JSON header. Nothing in it is ever executed.

The header describes the arrays. A digest over header and arrays detects edited or truncated files.
A file holds everything that prediction, leave-one-out and `partial_fit` need, but not the training
rows. Messages are computed again on loading, to the same bits. Long arrays of few distinct values
are stored as numbers (`numbered.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from triegp.files.memory import check_memory
from triegp.files.numbered import number_values, restore_values
from triegp.files.tensors import StoredArray, lay_out, read_arrays, read_top, refuse_holes
from triegp.files.whole import write_whole

FORMAT = "triegp"
VERSION = 1

Arrays = dict[str, npt.NDArray[Any]]


class ModelFileError(ValueError):
    """Raised for a file that is truncated, edited, not a model file, or from a newer version."""


def write_file(path: str | Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Write header and arrays to a file, completely or not at all.

    An existing file is replaced and its permissions are kept. A link stays a link.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    arrays, numbered = number_values(arrays)
    text = json.dumps({"version": VERSION, **header, "numbered": numbered}, sort_keys=True)
    # One entry only: safetensors writes several in no fixed order, and files must be reproducible.
    metadata = {FORMAT: f'{{"sha256": "{_digest(text, arrays)}", {text[1:]}'}
    write_whole(path, save(arrays, metadata))


def read_file(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays of a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If it is truncated, edited, not a model file, or from a newer version of triegp.
    MemoryError
        If its arrays need more memory than this process may have; nothing is read then.
    """
    path = Path(path)
    with _opened(path) as (file, text, stored):
        header = _parse_header(path, text)
        signed = re.fullmatch(r'\{"sha256": "([0-9a-f]{64})", (.*)', text, re.DOTALL)
        if signed is None:
            raise ModelFileError(f"{path} was changed after it was written: it has no digest")
        numbered = header.pop("numbered", {})
        check_memory(sum(_count_bytes(array, numbered) for array in stored))
        refuse_holes(file)
        arrays = read_arrays(file, stored)
    if signed[1] != _digest(f"{{{signed[2]}", arrays):
        raise ModelFileError(f"{path} was changed after it was written: its digest does not match")
    try:
        arrays = restore_values(arrays, numbered)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{path} has arrays that cannot be read: {error}") from error
    return header, arrays


def read_header(path: str | Path) -> dict[str, Any]:
    """Read the header of a file only; its digest is not checked. Raises as `read_file` does."""
    path = Path(path)
    with _opened(path) as (_, text, _):
        return _parse_header(path, text)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], str, list[StoredArray]]]:
    """An open file at its first array, the text of our header, and which arrays follow.

    Raises ModelFileError for all that goes wrong with the file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with path.open("rb") as file:
            metadata, entries, n_bytes = read_top(file)
            if FORMAT not in metadata:
                raise ModelFileError(f"{path} is a safetensors file, but not a triegp model")
            yield file, metadata[FORMAT], lay_out(entries, n_bytes)
    except ModelFileError:
        raise
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a model file, or is truncated: {error}") from error


def _parse_header(path: Path, text: str) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(text)
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path} has a header that cannot be read: {error!r:.80}") from error
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{path} has format version {version!r:.40}, expected 1 or more")
    if version > VERSION:
        raise ModelFileError(
            f"{path} has format version {version}; this triegp reads up to {VERSION}: "
            "install a newer triegp"
        )
    return header


def _count_bytes(stored: StoredArray, numbered: dict[str, Any]) -> int:
    """Bytes of an array, with those of the one that its planes become, 64 bits per entry."""
    restored = stored.name.removesuffix(".numbers") in numbered
    return stored.n_bytes + sum(8 * 8 * n for n in stored.shape[-1:] if restored)


def _digest(text: str, arrays: Arrays) -> str:
    """SHA-256 over the header and all arrays: names, types, shapes, values."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
