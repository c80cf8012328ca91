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
loading = threading.Thread(target=imports.import_once, args=("slow_part",))
loading.start()
assert begun.wait(60)
threading.Timer(0.2, sys.go_on.set).start()  # while the fork waits for the import
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(imports.import_once("slow_part").VALUE)
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


PRESSED = """
import _thread, os, signal, threading
from triegp.engines.cpu import compiler
from triegp.imports import LOADING
compiler._numba()
lock = compiler._compiler_lock()
held, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # called before the hook of `compiler`
signal.alarm(60)

def compile_slowly():
    with lock:
        held.set()
        assert forking.wait(60)
        _thread.interrupt_main()  # while the fork waits for this lock, or shortly before
        threading.Event().wait(0.2)

threading.Thread(target=compile_slowly).start()
assert held.wait(60)
pressed, child = False, None
try:
    child = os.fork()
    if child == 0:
        os._exit(7)
    os.waitpid(child, 0)
    threading.Event().wait(30)
except KeyboardInterrupt:
    pressed = True
free = []
thread = threading.Thread(target=lambda: free.append(LOADING.acquire(timeout=30)))
thread.start()
thread.join()
print(pressed, free, compiler._held)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_ctrl_c_while_a_fork_waits_for_the_compiler():
    command = [sys.executable, "-W", "ignore", "-c", PRESSED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "True [True] []", done.stderr
    assert "Exception ignored" not in done.stderr


LOADED = """
import os, signal, sys, threading, time
from triegp import serving
serving.load(sys.argv[1])
import triegp
loading = threading.Thread(target=lambda: triegp.load(sys.argv[1]))
loading.start()
while "sklearn" not in sys.modules:  # being imported, by the first `load`
    time.sleep(0.001)
child = os.fork()
if child == 0:
    signal.alarm(100)
    triegp.load(sys.argv[1])
    os._exit(7)
_, status = os.waitpid(child, 0)
loading.join()
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_while_the_first_model_is_loaded(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((50, 2))
    model = BinaryTreeGPRegressor(n_members=2, n_candidates=2, max_iter=2, random_state=0)
    model.fit(X, X.sum(axis=1)).save(tmp_path / "model")
    command = [sys.executable, "-W", "ignore", "-c", LOADED, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["7"]), done.stderr
