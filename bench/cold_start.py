"""Seconds that a fresh process takes to import, to fit for the first time, and to serve a file.

    python -m bench.cold_start            # medians of 5 processes each
    python -m bench.cold_start --kernels  # what a first fit compiles, kernel by kernel

Every line is a process of its own. "cpu" is user and system time, which other work on the machine
hardly changes; "wall" is what a user waits. An empty cache is an empty NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import argparse
import doctest
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = """
import numpy as np
rng = np.random.default_rng(0)
X = rng.random((1_000, 5))
y = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(1_000)
"""
FIT = ROWS + "import triegp; triegp.{}(random_state=0).fit(X, y)"
LOAD = "import triegp; triegp.load({!r}).predict([[0.5] * 5], return_std=True)"
SERVE = "from triegp import serving; serving.load({!r}).predict([[0.5] * 5], return_std=True)"
WRITE = ROWS + "import triegp; triegp.{}(random_state=0).fit(X, y).save({!r})"
IMPORTS = {
    "import triegp": "import triegp",
    "import numpy": "import numpy",
    "import sklearn.base": "import sklearn.base",
    "from triegp import BinaryTreeGPRegressor": "from triegp import BinaryTreeGPRegressor",
}
ESTIMATORS = ("BinaryTreeGPRegressor", "TrieGPRegressor")
KERNELS = """
import collections, time
from numba.core import event
open_, own = [], collections.Counter()
class Listener(event.Listener):
    def on_start(self, started):
        open_.append([time.thread_time(), 0.0])
    def on_end(self, ended):
        start, inner = open_.pop()
        took = time.thread_time() - start
        if open_:
            open_[-1][1] += took
        kernel = ended.data["dispatcher"].py_func
        own[kernel.__module__ + "." + kernel.__name__] += took - inner
event.register("numba:compile", Listener())
"""
SHOW = """
for name, seconds in own.most_common(20):
    print(f"{seconds:6.2f}  {name}")
print(f"{own.total():6.2f}  all {len(own)}")
"""


def snippet() -> str:
    """The first example of the README."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    block = text.split("```pycon")[1].split("```")[0]
    return "".join(part.source for part in doctest.DocTestParser().get_examples(block))


def run(code: str, cache: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a process that runs this code."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        check=True,
    )
    wall, after = time.perf_counter() - start, os.times()
    spent = after.children_user + after.children_system
    return wall, spent - before.children_user - before.children_system


def show(name: str, code: str, cache: Path | None, repeats: int) -> None:
    """Print the medians of several processes; `cache` None is an empty one for each."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as empty:
            found.append(run(code, cache or Path(empty)))
    wall, cpu = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"{name:<62} wall {wall:6.2f} s   cpu {cpu:6.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.kernels:
            codes = {name: FIT.format(name) for name in ESTIMATORS}
            for name, code in {**codes, "README's first example": snippet()}.items():
                print(name, flush=True)
                run(KERNELS + code + SHOW, Path(folder) / name)
            return
        cache = Path(folder) / "cache"
        for name, code in IMPORTS.items():
            show(name, code, cache, options.repeats)
        for name, where in {"empty cache": None, "cached": cache}.items():
            run(snippet(), cache)
            show(f"README's first example, {name}", snippet(), where, min(options.repeats, 2))
        for estimator in ESTIMATORS:
            model = str(Path(folder) / estimator)
            run(WRITE.format(estimator, model) + "\n" + LOAD.format(model), cache)
            fit = FIT.format(estimator)
            show(f"{estimator}: fit 1,000 rows, cached", fit, cache, options.repeats)
            for name, code in {"load": LOAD, "serving.load": SERVE}.items():
                start, few = code.format(model), min(options.repeats, 2)
                show(f"{estimator}: {name}, predict a row, cached", start, cache, options.repeats)
                show(f"{estimator}: {name}, predict a row, empty cache", start, None, few)
            show(f"{estimator}: fit 1,000 rows, empty cache", fit, None, min(options.repeats, 2))


if __name__ == "__main__":
    main()
