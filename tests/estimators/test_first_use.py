"""What the first use of a fresh installation compiles: a new user waits for it."""

import os
import subprocess
import sys

import pytest

FIRST = """
import warnings

import numpy as np
from numba.core import event

import triegp


class Listener(event.Listener):
    def on_start(self, started):
        pass

    def on_end(self, ended):
        kernel = ended.data["dispatcher"].py_func
        print(f"{kernel.__module__}.{kernel.__name__}")


event.register("numba:compile", Listener())
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.random((2_200, 4))
y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(2_200)
model = triegp.TrieGPRegressor(n_trees=4, max_iter=2, random_state=0).fit(X[:2_000], y[:2_000])
model.predict(X[2_000:], return_std=True)
model.predict_interval(X[2_000:])
model.partial_fit(X[2_000:], y[2_000:]).feature_importances_
"""
MOST = 65  # functions, with those of numba's library


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Names of the functions that are compiled with an empty cache, one for each signature."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_few_functions_are_compiled(compiled):
    assert 30 < len(compiled) <= MOST


def test_kernels_are_compiled_for_one_signature(compiled):
    own = [name for name in compiled if name.startswith("triegp.")]
    assert sorted(own) == sorted(set(own))
