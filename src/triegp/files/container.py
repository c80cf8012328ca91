"""Model files: one safetensors file with a JSON header. Nothing in it is ever executed.

The header describes the arrays. A digest over header and arrays detects edited or truncated files.
A file holds everything that prediction, leave-one-out and `partial_fit` need, but not the training
rows. Messages are computed again on loading, to the same bits. Long arrays of few distinct values
are stored as numbers (`numbered.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from triegp.files.numbered import number_values, restore_values

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

FORMAT = "triegp"
# 6: before intervals, with the keys of every member; 5: before tables; 4: before skewed tails;
# 3: before the smooth part; 2: before calibration as a stage; 1: before `tol`, `init`, `n_iter`
VERSION = 7
LEFTOVER_SECONDS = 3600.0  # without file locks: age from which a file of a save is not in use

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


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, completely or not at all.

    An existing file is replaced and its permissions are kept. A link stays a link.
    """
    target = Path(os.path.realpath(path))  # a link stays, the file that it leads to is replaced
    _remove_leftovers(target)
    with _new_part(target) as part:
        try:
            part.write(content)
            part.flush()
            os.fsync(part.fileno())
            if fcntl is None:
                part.close()  # Windows does not rename open files
            os.replace(part.name, target)
        except BaseException:
            part.close()
            Path(part.name).unlink(missing_ok=True)
            raise


def _new_part(target: Path) -> IO[bytes]:
    """Open a new file beside the target, with the permissions of the target if it exists.

    The file stays locked until it is closed, so that `_remove_leftovers` knows that it is in use.
    """
    keep = fcntl is not None and target.is_file()
    mode = stat.S_IMODE(target.stat().st_mode) if keep else None
    while True:
        name = str(target.with_name(f".{target.name}.{secrets.token_hex(4)}.part"))
        number = os.open(
            name,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0),
            0o666 if mode is None else mode & 0o600,
        )
        part = open(name, "wb", opener=lambda *_, number=number: number)  # noqa: SIM115
        try:
            free = _lock(part) and (fcntl is None or os.fstat(part.fileno()).st_nlink > 0)
        except OSError:  # there are no locks here: no save removes another's file
            free = True
        if free:
            break
        part.close()  # another save took it for a leftover
    if mode is not None:
        with suppress(OSError):  # a file system without permissions
            os.fchmod(part.fileno(), mode)
    return part


def _remove_leftovers(target: Path) -> None:
    """Remove files that killed saves to the target left behind, but not those still in use."""
    own = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.part")
    found: list[Path] = []
    with suppress(OSError):  # a folder that cannot be read
        found = [path for path in target.parent.iterdir() if own.fullmatch(path.name)]
    for path in found:
        with suppress(OSError):  # it is gone, someone else's, or there are no locks here
            if fcntl is not None:
                with path.open("rb") as part:
                    if _lock(part):
                        path.unlink()
            elif time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                path.unlink()


def _lock(file: IO[bytes]) -> bool:
    """Lock an open file; False if it is locked already. The lock ends with the process."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_file(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays of a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If it is truncated, edited, not a model file, or from a newer version of triegp.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            text = metadata.get(FORMAT)
            if text is None:
                raise ModelFileError(f"{path} is a safetensors file, but not a triegp model")
            header = _read_header(path, text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except ModelFileError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{path} is not a model file, or is truncated: {error}") from error
    signed = re.fullmatch(r'\{"sha256": "([0-9a-f]{64})", (.*)', text, re.DOTALL)
    if signed is None or signed[1] != _digest(f"{{{signed[2]}", arrays):
        raise ModelFileError(f"{path} was changed after it was written: its digest does not match")
    try:
        arrays = restore_values(arrays, header.pop("numbered", {}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{path} has arrays that cannot be read: {error}") from error
    return header, arrays


def _read_header(path: Path, text: str) -> dict[str, Any]:
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


def _digest(text: str, arrays: Arrays) -> str:
    """SHA-256 over the header and all arrays: names, types, shapes, values."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
