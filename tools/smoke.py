"""Use an installed triegp that has no extras: fit, predict, save, load, and import every module.

Run by `make wheel-test` in a fresh environment, outside the checkout.
"""

import importlib
import pkgutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import triegp

# Modules that need an extra, and a package of that extra.
EXTRAS = {
    "triegp.dask": "dask",
    "triegp.botorch": "botorch",
    "triegp.mlflow": "mlflow",
    "triegp.skpro": "skpro",
    "triegp.optuna": "optuna",
    "triegp.engines.cuda": "cupy",
    "triegp.cli": "click",
    "triegp.plots": "matplotlib",
    "triegp.report": "matplotlib",
}


def check_package() -> None:
    """The installed package has its type marker, its version and no part of the checkout."""
    home = Path(triegp.__file__).parent
    assert "site-packages" in home.parts, home
    assert (home / "py.typed").is_file()
    assert triegp.__version__ == version("triegp"), (triegp.__version__, version("triegp"))
    for name in ("bench", "tests", "conftest"):
        assert not (home.parent / name).exists(), name


def import_modules() -> int:
    """Import every module; those of extras that are not installed may raise ImportError."""
    count = 0
    for module in pkgutil.walk_packages(triegp.__path__, "triegp.", onerror=lambda name: None):
        if module.name.endswith("__main__"):
            continue
        extra = next((need for room, need in EXTRAS.items() if module.name.startswith(room)), None)
        try:
            importlib.import_module(module.name)
        except ImportError:
            if extra is None or importlib.util.find_spec(extra) is not None:
                raise
        else:
            count += 1
    return count


def fit_and_load(model: triegp.BinaryTreeGPRegressor | triegp.TrieGPRegressor) -> None:
    """Fit a small model, save it, and load it again: the same predictions."""
    rng = np.random.default_rng(0)
    X = rng.random((120, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    model.fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5
    assert (std > 0).all()
    low, high = model.predict_interval(X).T
    assert (low < high).all()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        again = triegp.load(Path(folder) / "model")
    assert np.array_equal(again.predict(X), mean)


def ask_command() -> str:
    """What the command `triegp --help` answers, if there is one; it names the missing extra."""
    command = Path(sys.executable).with_name("triegp")
    if not command.exists():
        return "no command"
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if importlib.util.find_spec("click") is None:
        assert done.returncode != 0, said
        assert "triegp[cli]" in said, said
    else:
        assert done.returncode == 0, said
    return said.strip().splitlines()[-1]


if __name__ == "__main__":
    check_package()
    n_modules = import_modules()
    fit_and_load(triegp.BinaryTreeGPRegressor(n_members=2, max_iter=5, random_state=0))
    fit_and_load(triegp.TrieGPRegressor(n_trees=4, max_iter=3, random_state=0))
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"triegp {triegp.__version__}, Python {python}: {n_modules} modules; {ask_command()}")
