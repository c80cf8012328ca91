"""Saves that are killed at random moments, and saves to a full disk.

    python -m tools.kill_saves --count 1000     a new seed, which is printed

One process loads two models. It forks a process that saves one after the other over the same file,
without end, and kills it after a random time. The file must then be that of one of the two models,
whole. It is reached by a link, and has permissions of its own: both must stay.
"""

from __future__ import annotations

import argparse
import collections
import errno
import os
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

MODE = 0o640


class NotMountedError(Exception):
    """Raised if no file system can be mounted here."""


def kill_saves(models: tuple[Any, Any], folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill so many saves; what was found, counted. Raises AssertionError if a file is broken.

    The folder must be empty. A killed save may leave one file beside the target, `.NAME.*.part`,
    which the next save to the same target removes.
    """
    draw = np.random.default_rng(seed)
    target, link = folder / "target", folder / "link"
    link.symlink_to(target)
    contents, seconds = [], 0.0
    for model in models:
        began = time.perf_counter()
        model.save(target)
        seconds = time.perf_counter() - began
        contents.append(target.read_bytes())
    assert contents[0] != contents[1]
    target.chmod(MODE)
    found = {"the first file": 0, "the second file": 0, "with a file left behind": 0}
    for _ in range(count):
        _kill_one(models, link, float(draw.uniform(0.0, 6.0 * seconds)))
        names = sorted(os.listdir(folder))
        left = [name for name in names if name not in ("link", "target")]
        assert len(left) <= 1, left
        assert all(name.startswith(".target.") and name.endswith(".part") for name in left), left
        assert link.is_symlink()
        assert stat.S_IMODE(target.stat().st_mode) == MODE
        content = target.read_bytes()
        assert content in contents, f"neither file, but {len(content)} bytes"
        found["the first file" if content == contents[0] else "the second file"] += 1
        found["with a file left behind"] += len(left)
    models[0].save(link)
    assert sorted(os.listdir(folder)) == ["link", "target"]
    return found


def _kill_one(models: tuple[Any, Any], path: Path, seconds: float) -> None:
    """Save in another process, again and again; kill it so many seconds after it began."""
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(begun, b"x")
            while True:
                for model in models:
                    model.save(path)
        finally:
            os._exit(1)
    os.read(ready, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(ready)
    os.close(begun)
    assert os.WIFSIGNALED(status), "a save failed before it was killed"


def save_over_limit(model: Any, path: Path, limit: int) -> int:
    """Save in another process in which a file may have so many bytes; the errno, 0 if it saved."""
    import resource

    child = os.fork()
    if not child:
        status = 255
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            model.save(path)
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[Path]:
    """A file system of so many bytes; raises NotMountedError if that is not possible."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "none", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise NotMountedError(f"no file system can be mounted here: {error}") from error
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_disks(models: tuple[Any, Any], folder: Path) -> dict[str, int]:
    """Save over a file where there is no space, and beyond a limit; what was found, counted."""
    found: collections.Counter[str] = collections.Counter()
    path = folder / "model"
    models[0].save(path)
    old = path.read_bytes()
    for limit in np.linspace(0, len(old) - 1, 20).astype(int).tolist():
        assert save_over_limit(models[1], path, limit) == errno.EFBIG
        assert path.read_bytes() == old
        assert os.listdir(folder) == ["model"]
        found["over the limit of a file"] += 1
    page = os.sysconf("SC_PAGE_SIZE")
    pages = -(-len(old) // page)
    try:
        with small_disk(folder / "disk", 2 * pages * page) as disk:
            models[0].save(disk / "model")
            for free in reversed(range(pages)):
                (disk / "other").write_bytes(b"0" * ((pages - free) * page))
                code = 0
                try:
                    models[1].save(disk / "model")
                except OSError as error:
                    code = error.errno or 0
                assert code == errno.ENOSPC
                assert (disk / "model").read_bytes() == old
                assert sorted(os.listdir(disk)) == ["model", "other"]
                found["on a full disk"] += 1
    except NotMountedError as error:
        print(error)
    return dict(found)


def two_models() -> tuple[Any, Any]:
    """Two small models whose files have about the same size."""
    from triegp import BinaryTreeGPRegressor

    X = np.random.default_rng(0).random((60, 2))
    quick = {"n_members": 2, "n_candidates": 2, "max_iter": 2, "n_jobs": 1, "random_state": 0}
    first, second = (BinaryTreeGPRegressor(**quick).fit(X, X @ w) for w in ([1.0, 2.0], [2.0, 1.0]))
    return first, second


def main() -> int:
    """Kill saves and fill disks; an AssertionError says what is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="kills (1000)")
    parser.add_argument("--seed", type=int, help="default: a new one")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"kill-saves: seed {seed}", flush=True)
    models = two_models()
    for name in ("kills", "disks"):
        with tempfile.TemporaryDirectory() as folder:
            if name == "kills":
                found = kill_saves(models, Path(folder), options.count, seed)
            else:
                found = fill_disks(models, Path(folder))
        print(f"{name}: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
