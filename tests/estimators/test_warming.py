"""After `warm_up`, fits and predictions compile nothing, in this process and in later ones."""

import os
import subprocess
import sys

import pytest

USE = """
import gc
import sys
import warnings

import numpy as np
from numba.core import event
from numba.core.dispatcher import Dispatcher

compiled = []


class Listener(event.Listener):
    def on_start(self, started):
        pass

    def on_end(self, ended):
        kernel = ended.data["dispatcher"].py_func
        compiled.append(f"{kernel.__module__}.{kernel.__name__} {ended.data['args']}")


event.register("numba:compile", Listener())
warnings.simplefilter("ignore")

import triegp


def loaded():
    kernels = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    return {
        (kernel.py_func.__module__, kernel.py_func.__qualname__, str(signature))
        for kernel in kernels
        for signature in kernel.signatures
        if kernel.py_func.__module__.startswith("triegp.")
    }


def use(model, n_rows):
    rng = np.random.default_rng(1)
    X = rng.random((n_rows, 4)).astype(np.float32)
    y = np.sin(6 * X[:, 0]) + (0.1 + X[:, 1]) * rng.standard_normal(n_rows)
    model.fit(X, y)
    model.predict(X[:1])
    model.predict(X[:1], return_std=True)
    model.predict_interval(X[:300])
    model.predict_quantiles(X[:3], [0.2, 0.7], latent=True)
    model.partial_fit(X[:5], y[:5])
    model.predict(X[:3], return_std=True)
    model.loo_predict()


def use_all():
    use(triegp.BinaryTreeGPRegressor(n_members=3, max_iter=3, random_state=0), 450)
    use(triegp.BinaryTreeGPRegressor(n_members=2, max_iter=2, random_state=0), 33_000)
    use(triegp.TrieGPRegressor(n_trees=4, max_iter=3, random_state=0), 120)
    use(triegp.TrieGPRegressor(n_trees=4, max_iter=2, random_state=0), 2_600)


if sys.argv[1] == "warm":
    assert triegp.warm_up() > 0.0
    before = loaded()
    assert len(before) > 50
    use_all()
    print(*sorted(map(str, loaded() - before)), sep="\\n", end="")
else:
    use_all()
    print(*compiled, sep="\\n", end="")
"""


@pytest.fixture(scope="module")
def new_after_warming():
    """Kernels that are used after `warm_up` and were not used in it."""
    return run("warm")


def run(what):
    command = [sys.executable, "-c", USE, what]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fits_and_predictions_use_no_kernel_that_is_not_warm(new_after_warming):
    assert new_after_warming == ""


def test_a_later_process_compiles_nothing(new_after_warming):
    assert run("use") == ""
