"""Forks while another thread loads numba and compiles: parent and child go on."""

import os
import subprocess
import sys

import numpy as np
import pytest

from triegp import BinaryTreeGPRegressor

CODE = """
import os, sys, threading, time
import numpy as np
from triegp import serving
model = serving.load(sys.argv[1])
X = np.full((2, 2), 0.5)
compiling = threading.Thread(target=model.compile)
compiling.start()
time.sleep(float(sys.argv[2]))  # numba is being loaded, or kernels
child = os.fork()
if child == 0:
    model.predict_interval(X)
    model.compile().predict(X)
    os._exit(0)
_, status = os.waitpid(child, 0)
compiling.join()
print(os.waitstatus_to_exitcode(status), model.compiled_)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("delay", [0.0, 0.03, 0.1, 0.3])
def test_a_fork_while_kernels_are_loaded(tmp_path, delay):
    rng = np.random.default_rng(0)
    X = rng.random((100, 2))
    model = BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=2, random_state=0)
    model.fit(X, X.sum(axis=1)).save(tmp_path / "model")
    command = [sys.executable, "-W", "ignore", "-c", CODE, str(tmp_path / "model"), str(delay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "True"]
    assert "un-acquired" not in done.stderr
