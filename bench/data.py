"""The paper's splits of the tables in `bench.sources`: 64 % train, 16 % validation, 20 % test.

Parts are loaded by name, so that code which tunes can be seen not to load the test part.

A table is looked for as NAME/data.npz (arrays X and y, neither scaled nor split) in the data
folder ($TRIEGP_DATA, or shared/data beside the repository), then in the cache ($TRIEGP_CACHE, or
the user's cache folder); otherwise it is downloaded into the cache.
"""

import os
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from bench.sources import DATASETS, DataError, check, download, fingerprint

SEVEN = ("pol", "elevators", "bike", "kin40k", "protein", "keggdirected", "keggundirected")
TWELVE = tuple(name for name, dataset in DATASETS.items() if dataset.paper)


def load(name, seed, *parts):
    """[(X, y), ...] for parts among "train", "valid", "test"; read as float32, used as float64."""
    for part in parts:
        if part not in ("train", "valid", "test"):
            raise ValueError(f'part must be "train", "valid" or "test", got {part!r}')
    X, y = read(name)
    rows = np.random.RandomState(seed).permutation(len(y))
    first = int(0.8 * len(y))
    second = int(0.8 * first)
    where = {"train": rows[:second], "valid": rows[second:first], "test": rows[first:]}
    return [(X[where[p]].astype(np.float64), y[where[p]].astype(np.float64)) for p in parts]


def available(name):
    """Whether the table can be loaded without a download."""
    _registered(name)
    return any(path.exists() for path in _places(name))


def read(name):
    """The whole table, checked: X (rows, features) and y (rows,), float32."""
    dataset = _registered(name)
    *local, cached = _places(name)
    for path in local:
        if path.exists():
            X, y = _read_file(path)
            check(dataset, X, y, dataset.checksum, path)
            return X, y
    if cached.exists():
        return _read_cached(dataset, cached)
    try:
        if dataset.address is None:
            raise DataError(f"there is no download; the original: {dataset.source}")
        return _download(dataset, cached)
    except DataError as error:
        size = f"X ({dataset.rows} x {dataset.features}) and y ({dataset.rows})"
        raise DataError(
            f"{name} is in none of {', '.join(map(str, _places(name)))}, and {error}. "
            f"To provide it, write {(*local, cached)[0]} with numpy.savez: arrays {size}, "
            "neither scaled nor split; $TRIEGP_DATA names another folder"
        ) from error


def data_folder():
    """$TRIEGP_DATA, or shared/data beside the repository where there is one, or None."""
    if folder := os.environ.get("TRIEGP_DATA"):
        return Path(folder).expanduser()
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return beside if beside.is_dir() else None


def cache_folder():
    """$TRIEGP_CACHE, or triegp in the platform's folder for caches."""
    if folder := os.environ.get("TRIEGP_CACHE"):
        return Path(folder).expanduser()
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        caches = "~/Library/Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "triegp"


def _registered(name):
    if name not in DATASETS:
        raise ValueError(f"name must be one of {', '.join(DATASETS)}, got {name!r}")
    return DATASETS[name]


def _places(name):
    folders = (data_folder(), cache_folder())
    return [folder / name / "data.npz" for folder in folders if folder is not None]


def _read_file(path):
    try:
        with path.open("rb") as file, np.load(file) as data:
            X = data["X"].astype(np.float32, copy=False)
            return X, data["y"].astype(np.float32, copy=False).ravel()
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not an npz file with arrays X and y: {error}") from error


def _first_checksum(path):
    """File with the checksum of a table's first download, for tables without a registered one."""
    return path.with_name("data.sha256")


def _expected_checksum(dataset, path):
    first = _first_checksum(path)
    if dataset.checksum is None and first.exists():
        return first.read_text().strip()
    return dataset.checksum


def _read_cached(dataset, path):
    try:
        X, y = _read_file(path)
        check(dataset, X, y, _expected_checksum(dataset, path), path)
    except DataError as error:
        path.unlink(missing_ok=True)
        raise DataError(f"{error}. It was removed; the next load downloads it again") from error
    return X, y


def _download(dataset, path):
    """Download, check, and only then put into the cache."""
    first = _first_checksum(path)
    expected = _expected_checksum(dataset, path)
    path.parents[1].mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parents[1], prefix=".download-") as scratch:
        X, y = download(dataset, Path(scratch))
        try:
            check(dataset, X, y, expected, dataset.address)
        except DataError as error:
            if dataset.checksum is None and expected is not None:
                raise DataError(f"{error} (of the first download, kept in {first})") from error
            raise
        path.parent.mkdir(exist_ok=True)
        if dataset.checksum is None and expected is None:
            written = Path(scratch, first.name)
            written.write_text(fingerprint(X, y) + "\n")
            os.replace(written, first)
        written = Path(scratch, path.name)
        np.savez(written, X=X, y=y)
        os.replace(written, path)
    return X, y
