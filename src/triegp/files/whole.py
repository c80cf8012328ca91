"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

LEFTOVER_SECONDS = 3600.0  # without file locks: age from which a file of a save is not in use


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, completely or not at all, as `open_whole` does."""
    with open_whole(path) as file:
        file.write(content)


@contextmanager
def open_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of `path` when the block ends.

    Until then it lies beside the target, as `.NAME.xxxxxxxx.part`. If the block raises, it is
    removed, and the target is as before. An existing file is replaced in one step and its
    permissions are kept. A link stays a link. Devices and pipes cannot be replaced: they are
    written to directly.
    """
    target = Path(os.path.realpath(path))  # a link stays, the file that it leads to is replaced
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if Path(path).exists() and not Path(path).is_file():
        with open(path, "wb") as device:
            yield device
        return
    _remove_leftovers(target)
    names: list[str] = []
    part: IO[bytes] | None = None
    try:  # from before there is a file: Ctrl-C may come at once
        part = _new_part(target, names)
        yield part
        part.flush()
        os.fsync(part.fileno())
        if fcntl is None:
            part.close()  # Windows does not rename open files
        os.replace(part.name, target)
        part.close()
    except BaseException:
        if part is not None:
            with suppress(OSError):  # what is in its buffer may not find space either
                part.close()
        for name in names:
            Path(name).unlink(missing_ok=True)
        raise


def _new_part(target: Path, names: list[str]) -> IO[bytes]:
    """Open a new file beside the target, with the permissions of the target if it exists.

    The file stays locked until it is closed, so that `_remove_leftovers` knows that it is in use.
    names: gets the name of every file that is made, before it is.
    """
    keep = fcntl is not None and target.is_file()
    mode = stat.S_IMODE(target.stat().st_mode) if keep else None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    permissions = 0o666 if mode is None else mode & 0o600
    while True:
        name = str(target.with_name(f".{target.name}.{secrets.token_hex(4)}.part"))
        names.append(name)
        part = open(name, "wb", opener=lambda path, _: os.open(path, flags, permissions))  # noqa: SIM115
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
