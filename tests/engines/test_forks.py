"""Forks while another thread loads libraries or compiles: parent and child go on."""

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


IMPORTING = """
import os, signal, sys, threading
from triegp.engines.cpu import compiler  # its hook makes forks wait
from triegp import imports
sys.path.insert(0, sys.argv[1])
begun, sys.go_on = threading.Event(), threading.Event()
sys.begun = begun
loading = threading.Thread(target=imports.load, args=("slow_part",))
loading.start()
assert begun.wait(60)
threading.Timer(0.2, sys.go_on.set).start()  # while the fork waits for the import
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(imports.load("slow_part").VALUE)
_, status = os.waitpid(child, 0)
loading.join()
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_while_a_library_is_imported(tmp_path):
    lines = "import sys\nsys.begun.set()\nassert sys.go_on.wait(60)\nVALUE = 7\n"
    (tmp_path / "slow_part.py").write_text(lines)
    command = [sys.executable, "-W", "ignore", "-c", IMPORTING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["7"]), done.stderr


MAKING = """
import os, signal, threading, time
from triegp.engines.cpu import compiler
compiler._numba()
lock = compiler._compiler_lock()
begun, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # called before the hook of `compiler`
signal.alarm(60)

class Slow(compiler.Kernel):
    def _make(self, njit):
        begun.set()
        assert forking.wait(60)
        end = time.monotonic() + 0.3
        while time.monotonic() < end and lock._lock.acquire(blocking=False):
            lock.release()  # until the fork holds it, if it can
        with lock:  # numba takes it when it makes its first dispatcher
            return super()._make(njit)

kernel = Slow(lambda x: x + 1)
making = threading.Thread(target=lambda: kernel.dispatcher)
making.start()
assert begun.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(kernel(6))
_, status = os.waitpid(child, 0)
making.join()
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_while_a_dispatcher_is_made():
    command = [sys.executable, "-W", "ignore", "-c", MAKING]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["7"]), done.stderr
