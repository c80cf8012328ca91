"""Which engine trains, and the errors if the requested one cannot run."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest
from sklearn.base import clone

from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.engines import CpuEngine, choice, pack_positions, place_values
from triegp.engines.choice import AUTO_ROOM, AUTO_WORK, check_engine, choose, cuda_problem

FREE = 10**9  # bytes of the card that stands in

ESTIMATORS = [
    BinaryTreeGPRegressor(n_members=2, n_candidates=3, max_iter=5, random_state=0),
    TrieGPRegressor(n_trees=4, max_iter=2, random_state=0),
]


class CudaEngine(CpuEngine):
    """Stands in for the real one."""

    batches = True
    on_host = False

    def encode(self, values, beyond, maps):
        found = []
        for one in maps:
            at, nothing = np.empty(values.shape), np.zeros(0, bool)
            scaling = (one.low, one.high, one.high, one.knots, one.heights)
            place_values(np.ascontiguousarray(values), *scaling, nothing, at)
            packed = np.empty((len(values), -(-int(one.widths.sum()) // 8)), np.uint8)
            pack_positions(at, True, one.shift, one.scale, one.widths, packed)
            found.append(packed)
        return found


@pytest.fixture
def card(monkeypatch):
    """A machine with the extra, a driver and a device: fakes of all that is asked."""
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
    cupy = types.ModuleType("cupy")
    device = types.SimpleNamespace(compute_capability="75")
    cupy.cuda = types.SimpleNamespace(
        runtime=runtime,
        Device=lambda: device,
        is_available=lambda: True,
        get_current_stream=lambda: types.SimpleNamespace(ptr=0),
        Stream=types.SimpleNamespace(null=types.SimpleNamespace(synchronize=lambda: None)),
    )
    numba_cuda = types.SimpleNamespace(
        is_available=lambda: True, cuda_error=lambda: "\nno\ndriver\n"
    )
    engine = types.ModuleType("triegp.engines.cuda")
    engine.CudaEngine = CudaEngine
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "triegp.engines.cuda", engine)
    monkeypatch.setattr("numba.cuda", numba_cuda, raising=False)
    monkeypatch.setattr(choice, "_simulated", lambda: False)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(choice, "_free_bytes", lambda: FREE)
    return types.SimpleNamespace(cupy=cupy, runtime=runtime, numba=numba_cuda, device=device)


def test_auto_takes_the_card_where_it_is_worth_it(card):
    assert cuda_problem() is None
    assert type(choose("auto", AUTO_WORK)) is CudaEngine
    assert type(choose("auto", AUTO_WORK - 1)) is CpuEngine
    assert type(choose("cuda", 0)) is CudaEngine
    assert choose("cpu", 1e12, 3) == CpuEngine(n_threads=3)
    assert choose("auto", 0, 3) == CpuEngine(n_threads=3)


def test_what_does_not_fit_the_card_stays_on_the_cpu(card):
    assert type(choose("auto", 1e12, 0, FREE / AUTO_ROOM)) is CudaEngine
    assert type(choose("auto", 1e12, 0, FREE / AUTO_ROOM + 1)) is CpuEngine
    assert type(choose("cuda", 0, 0, FREE)) is CudaEngine
    assert type(choose("cpu", 0, 0, 1e15)) is CpuEngine
    with pytest.raises(MemoryError, match=r"needs about 2\.5 GB on the device, 1\.0 GB are free"):
        choose("cuda", 0, 0, 2.5e9)


def test_a_card_too_full_to_be_asked_has_no_memory(monkeypatch):
    def full():
        raise RuntimeError("cudaErrorMemoryAllocation: out of memory")

    monkeypatch.setattr("triegp.engines.cuda.card.free_bytes", full)
    assert choice._free_bytes() == 0


@pytest.mark.parametrize(
    ("model", "needed"),
    [
        # Rows of 2 features, of 16 bits and one for the shift: 5 bytes per grid and tree. A member
        # of the mixture keeps trie, key and messages, and has leave-one-out predictions.
        (ESTIMATORS[0], 80 * (120 + 16 + 2 * (44 + 8 + 72 + 16))),
        (clone(ESTIMATORS[0]).set_params(shift=False), 80 * (120 + 16 + 2 * (44 + 8 + 72 + 16))),
        (ESTIMATORS[1], 80 * (4 * (5 + 48) + 120 + 16 * (1_000 + 64))),
    ],
)
def test_a_fit_counts_what_it_takes_of_the_card(card, monkeypatch, model, needed):
    monkeypatch.setattr(choice, "AUTO_WORK", 0)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)  # few rows are factored on the host
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 2)), rng.random(80)
    held = []
    monkeypatch.setattr(CudaEngine, "hold", lambda self, array: held.append(0) or array)
    model = clone(model).set_params(precision=16, scaling="minmax")
    monkeypatch.setattr(choice, "_free_bytes", lambda: needed - 1)
    with pytest.raises(MemoryError, match=r"0\.0 GB are free"):
        clone(model).set_params(engine="cuda").fit(X, y)
    clone(model).fit(X, y)
    assert not held  # neither tried the card
    monkeypatch.setattr(choice, "_free_bytes", lambda: AUTO_ROOM * needed)
    clone(model).fit(X, y)
    assert held


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["numba_cuda"], r"numba-cuda is not installed: pip install 'triegp\[cuda\]'"),
        (["cupy"], r"CuPy is not installed: pip install 'triegp\[cuda\]'"),
        (["cupy", "numba_cuda"], "numba-cuda and CuPy are not installed"),
    ],
)
def test_what_is_not_installed_is_named(card, monkeypatch, missing, message):
    monkeypatch.setattr(
        choice.importlib.util, "find_spec", lambda name: None if name in missing else True
    )
    with pytest.raises(RuntimeError, match=f'engine="cuda" cannot run here: {message}'):
        choose("cuda", 1e12)
    assert type(choose("auto", 1e12)) is CpuEngine


def no_device():
    raise OSError("cudaErrorNoDevice: no CUDA-capable device is detected")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda card: setattr(card.runtime, "getDeviceCount", no_device), "cudaErrorNoDevice"),
        (lambda card: setattr(card.runtime, "getDeviceCount", lambda: 0), "there is no CUDA dev"),
        (lambda card: setattr(card.numba, "is_available", lambda: False), "numba .*: no driver"),
        (lambda card: setattr(card.device, "compute_capability", "70"), "capability 7.0, .* 7.5"),
    ],
)
def test_a_device_that_is_not_there_is_said_in_the_drivers_words(card, break_it, message):
    break_it(card)
    with pytest.raises(RuntimeError, match=message):
        check_engine("cuda")
    assert type(choose("auto", 1e12)) is CpuEngine


def test_a_missing_compiler_is_named(card):
    """numba reports no error in this case."""
    card.numba.is_available, card.numba.cuda_error = lambda: False, lambda: None
    with pytest.raises(RuntimeError, match=r"libNVVM: pip install 'triegp\[cuda\]'"):
        check_engine("cuda")


def test_an_engine_that_does_not_load_says_why(card, monkeypatch):
    monkeypatch.setitem(sys.modules, "triegp.engines.cuda", None)  # an ImportError
    with pytest.raises(RuntimeError, match=r"the engine does not load: .*Error"):
        check_engine("cuda")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match=r"CuPy or numba-cuda does not load: .*Error"):
        check_engine("cuda")
    assert type(choose("auto", 1e12)) is CpuEngine


def test_the_simulator_is_for_those_who_insist(card, monkeypatch):
    monkeypatch.setattr(choice, "_simulated", lambda: True)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)  # no CuPy needed
    assert type(choose("cuda", 0)) is CudaEngine
    assert type(choose("auto", 1e12)) is CpuEngine


@pytest.mark.parametrize("engine", ["gpu", None, 1])
def test_another_engine_is_refused(engine):
    with pytest.raises(ValueError, match="engine must be one of 'auto', 'cpu', 'cuda', got"):
        choose(engine, 0)


@pytest.mark.parametrize("model", ESTIMATORS)
def test_the_engine_is_a_parameter_like_any_other(model):
    assert model.get_params()["engine"] == "auto"
    assert clone(model.set_params(engine="cpu")).engine == "cpu"
    model.set_params(engine="auto")


@pytest.mark.parametrize("model", ESTIMATORS)
def test_cuda_that_is_not_there_fits_nothing(model, monkeypatch):
    monkeypatch.setattr(choice, "cuda_problem", lambda: "there is no CUDA device: none at all")
    with pytest.raises(RuntimeError, match="cannot run here: there is no CUDA device: none at all"):
        clone(model).set_params(engine="cuda").fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("init", [None, "even", "trained"])
def test_the_chosen_engine_trains_and_predicts(card, monkeypatch, init):
    """With the CPU's own work under another name: the same fit to the last bit."""
    monkeypatch.setattr("triegp.additive.singles.N_SINGLES", 2)
    rng = np.random.default_rng(0)
    X = rng.random((80, 2))
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    asked = []
    evaluate_many, sum_products = CudaEngine.evaluate_many, CudaEngine.sum_products

    def note(name, work):
        def noted(self, *args, **kwargs):
            asked.append(name)
            return work(self, *args, **kwargs)

        return noted

    monkeypatch.setattr(CudaEngine, "evaluate_many", note("many", evaluate_many))
    monkeypatch.setattr(CudaEngine, "sum_products", note("products", sum_products))
    model = clone(ESTIMATORS[0 if init is None else 1])
    if init is not None:
        model.set_params(init=init, smooth=False)  # the card has the smooth part without neighbours
    cpu, cuda = (clone(model).set_params(engine=engine).fit(X, y) for engine in ("cpu", "cuda"))
    # So few rows are factored on the host.
    assert set(asked) == ({"many"} if init in (None, "trained") else set())
    asked.clear()
    for one, two in zip(
        cpu.predict(X, return_std=True), cuda.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    assert not asked


def test_auto_counts_rows_and_orders(card, monkeypatch):
    """Eight rows per candidate: whether that is enough decides who trains."""
    asked = []

    def note(engine, work, n_threads=0, card_bytes=0):
        if engine != "cpu":  # as cross-fitting asks
            asked.append((engine, work, n_threads))
        return CpuEngine(n_threads=n_threads)

    X, y = np.arange(16.0).reshape(8, 2), np.arange(8.0)
    monkeypatch.setattr("triegp.mixture.train.choose", note)
    monkeypatch.setattr("triegp.additive.train.choose", note)
    for model in ESTIMATORS:
        clone(model).set_params(n_jobs=2).fit(X, y)
    clone(ESTIMATORS[0]).set_params(shift=False, n_jobs=1).fit(X, y)
    assert asked == [("auto", 8 * 2 * 3, 2), ("auto", 8 * 4 * 16, 2), ("auto", 8 * 3, 1)]


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


@pytest.mark.parametrize("simulator", ["0", "1"])
def test_neither_import_nor_a_fit_on_the_cpu_loads_cuda(simulator):
    code = """
import sys
import triegp
model = triegp.BinaryTreeGPRegressor(n_members=1, n_candidates=1, max_iter=1)
model.fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5]).predict([[0.5]])
print(*(name for name in ("cupy", "numba.cuda", "numba_cuda", "torch") if name in sys.modules))
"""
    assert run_python(code, NUMBA_ENABLE_CUDASIM=simulator) == []
