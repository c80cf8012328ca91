"""Rows on a device: to the host for encoding, predictions back as the same kind, same place."""

import importlib.util
import sys
import types
import weakref

import numpy as np
import pandas as pd
import pytest

from device_arrays import CudaError, DeviceArray, Dlpack, OutOfMemoryError
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.devices import device_work, like, on_device, to_host

HAS_CUPY = importlib.util.find_spec("cupy") is not None
HAS_TORCH = importlib.util.find_spec("torch") is not None


def test_arrays_of_the_host_pass_as_they_are():
    here = np.arange(3.0)
    others = ([1.0, 2.0], pd.DataFrame({"a": [1.0]}), pd.Series([1.0]), None, 2.5, "text", here)
    for array in others:
        assert not on_device(array)
        assert to_host(array) is array
        assert like(here, array) is here


def test_a_dlpack_array_goes_to_the_host_and_back():
    there = Dlpack(np.arange(6.0).reshape(2, 3), device="cuda:3")
    assert on_device(there)
    host = to_host(there)
    assert type(host) is np.ndarray
    np.testing.assert_array_equal(host, np.arange(6.0).reshape(2, 3))
    back = like(np.ones(2), there)
    assert (type(back), back.device) == (Dlpack, "cuda:3")
    np.testing.assert_array_equal(back._array, np.ones(2))


@pytest.mark.parametrize("device", [(1, 0), (3, 0)])
def test_memory_that_the_host_can_read_is_the_hosts(device):
    class Pinned(Dlpack):
        def __dlpack_device__(self):
            return device

    array = Pinned([1.0])
    assert not on_device(array)
    assert to_host(array) is array


def test_an_array_that_does_not_know_where_it_is_is_left_alone():
    class Lost(Dlpack):
        def __dlpack_device__(self):
            raise BufferError("on no device")

    array = Lost([1.0])
    assert to_host(array) is array


class Interface:
    """CUDA's array interface and nothing else, as older libraries have it."""

    def __init__(self, array):
        self.array = np.asarray(array)

    __cuda_array_interface__ = property(lambda self: {"version": 3})


class Silent:
    """DLPack of before `dl_device`, which cannot copy to the host; nothing else."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None):
        raise AssertionError("no host can read this")


class Readable(Silent):
    """The same, but `__array__` copies it to the host."""

    def __array__(self, dtype=None, copy=None):
        return self.array.copy()


def test_an_array_that_numpy_can_ask_for_is_read_so():
    np.testing.assert_array_equal(to_host(Readable([1.0, 2.0])), [1.0, 2.0])


@pytest.fixture
def fake_cupy(monkeypatch):
    """A module `cupy` whose arrays are in the host's memory; the current device is 0."""
    cupy = types.ModuleType("cupy")
    devices = [0]

    class Device:
        def __init__(self, number):
            self.id = number

        def __enter__(self):
            devices.append(self.id)

        def __exit__(self, *_):
            devices.pop()

    class ndarray(DeviceArray):  # noqa: N801
        __module__ = "cupy"

        def __init__(self, array, device):
            super().__init__(array)
            self.device = Device(device)

        def __dlpack_device__(self):
            return (2, self.device.id)

    def asarray(array):
        host = getattr(array, "array", getattr(array, "_array", array))
        return ndarray(host, devices[-1])

    class Stream:
        current = None  # set below

        def __init__(self, ptr):
            self.ptr, self.before = ptr, None

        def synchronize(self):
            cupy.log.append(f"wait for {self.ptr}")

        def __enter__(self):
            self.before, Stream.current = Stream.current, self
            cupy.log.append(f"on {self.ptr}")

        def __exit__(self, *_):
            Stream.current = self.before
            cupy.log.append(f"on {Stream.current.ptr}")

    Stream.null = Stream.current = Stream(0)
    cupy.ndarray, cupy.asarray, cupy.log = ndarray, asarray, []
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=Stream,
        get_current_stream=lambda: Stream.current,
        is_available=lambda: True,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


@pytest.mark.parametrize("device", [0, 2])
def test_cupy_arrays_stay_on_their_device(fake_cupy, device):
    there = fake_cupy.ndarray([1.0, 2.0], device)
    np.testing.assert_array_equal(to_host(there), [1.0, 2.0])
    back = like(np.ones(3), there)
    assert type(back) is fake_cupy.ndarray
    assert back.device.id == device


@pytest.mark.parametrize("kind", [Interface, Silent])
def test_what_nothing_else_can_read_goes_through_cupy(fake_cupy, kind):
    there = kind([1.0, 2.0])
    assert on_device(there)
    np.testing.assert_array_equal(to_host(there), [1.0, 2.0])
    assert type(like(np.ones(2), there)) is fake_cupy.ndarray


def test_device_work_is_done_on_the_default_stream(fake_cupy, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "triegp.engines.cuda", raising=False)
        with device_work():
            fake_cupy.log.append("work")
        assert fake_cupy.log == ["work"]  # on the host
    fake_cupy.log.clear()
    monkeypatch.setitem(sys.modules, "triegp.engines.cuda", types.ModuleType("cuda"))
    with device_work():
        fake_cupy.log.append("work")
    assert fake_cupy.log == ["work", "wait for 0"]
    fake_cupy.log.clear()
    with fake_cupy.cuda.Stream(7), device_work():
        fake_cupy.log.append("work")
    expected = ["on 7", "wait for 7", "on 0", "work", "on 7", "wait for 0", "on 0"]
    assert fake_cupy.log == expected
    with pytest.raises(KeyError), fake_cupy.cuda.Stream(7), device_work():
        raise KeyError
    assert fake_cupy.cuda.get_current_stream().ptr == 0


def test_results_are_complete_on_other_streams(fake_cupy):
    there = fake_cupy.ndarray([1.0, 2.0], 0)
    like(np.ones(3), there)
    assert fake_cupy.log == []  # the order on the default stream is enough
    with fake_cupy.cuda.Stream(7):
        like(np.ones(3), there)
    assert fake_cupy.log == ["on 7", "wait for 7", "on 0"]


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("Out of memory allocating 8 bytes"),
        CudaError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        CudaError("cudaErrorMemoryAllocation: out of memory"),
        CudaError("CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_a_device_without_memory_says_so(error):
    arrays = []

    def work():
        held = np.ones(3)
        arrays.append(weakref.ref(held))
        raise error

    with (
        pytest.raises(MemoryError, match='use fewer rows or engine="cpu"') as caught,
        device_work(),
    ):
        work()
    assert caught.value.__cause__ is error
    assert arrays[0]() is None  # although the error is still there


@pytest.mark.parametrize("error", [MemoryError("of the host"), CudaError("CUDA_ERROR_INVALID")])
def test_other_errors_of_device_work_are_raised_as_they_are(error):
    with pytest.raises(type(error)) as caught, device_work():
        raise error
    assert caught.value is error


def test_without_cupy_that_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(TypeError, match=r"of type Interface .* pip install 'triegp\[cuda\]'"):
        to_host(Interface([1.0]))


def test_torch_tensors_stay_on_their_device(monkeypatch):
    class Tensor(Dlpack):
        __module__ = "torch"
        detach = cpu = lambda self: self

        def numpy(self):
            return self._array

    torch = types.ModuleType("torch")
    torch.as_tensor = lambda values, device: Tensor(values, device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    there = Tensor([1.0, 2.0], "cuda:1")
    np.testing.assert_array_equal(to_host(there), [1.0, 2.0])
    back = like(np.ones(3), there)
    assert (type(back), back.device) == (Tensor, "cuda:1")


MODELS = {
    "ensemble": lambda: BinaryTreeGPRegressor(
        n_members=2, n_candidates=3, max_iter=5, random_state=0
    ),
    "forest": lambda: TrieGPRegressor(n_trees=4, max_iter=2, random_state=0),
}


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_targets", [None, 2])
def test_estimators_take_rows_on_a_device_and_answer_there(name, n_targets):
    rng = np.random.default_rng(0)
    X = rng.random((40, 2))
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal((n_targets or 1, 40))
    y = y[0] if n_targets is None else y.T
    weight, known = rng.integers(1, 3, 40).astype(float), np.full(40, 0.01)
    host, device = (
        MODELS[name]().fit(*map(put, (X, y, weight, known))).partial_fit(put(X[:3]), put(y[:3]))
        for put in (np.asarray, Dlpack)
    )
    new, values = X[:7] + 0.01, y[:7]
    there = Dlpack(new)
    answers = [
        lambda model, X, y: model.predict(X),
        lambda model, X, y: model.predict(X, return_std=True)[1],
        lambda model, X, y: model.predict(X, return_cov=True)[1],
        lambda model, X, y: model.predict_quantiles(X),
        lambda model, X, y: model.predict_interval(X),
        lambda model, X, y: model.log_density(X, y),
        lambda model, X, y: model.sample_y(X, 3),
    ]
    for ask in answers:
        expected, got = ask(host, new, values), ask(device, there, Dlpack(values))
        assert type(expected) is np.ndarray
        assert (type(got), got.device) == (Dlpack, there.device)
        np.testing.assert_array_equal(got._array, expected)
    assert device.score(there, Dlpack(values)) == host.score(new, values)
    assert type(device.loo_predict()[0]) is np.ndarray
    assert type(device.rows_.X) is np.ndarray


@pytest.mark.skipif(not HAS_CUPY, reason="CuPy is not installed")
@pytest.mark.card
def test_real_cupy_arrays():
    import cupy

    X = np.random.default_rng(1).random((60, 2))
    y = X[:, 0]
    model = MODELS["ensemble"]().fit(cupy.asarray(X), cupy.asarray(y))
    host = MODELS["ensemble"]().fit(X, y)
    mean, std = model.predict(cupy.asarray(X), return_std=True)
    assert isinstance(mean, cupy.ndarray)
    assert isinstance(std, cupy.ndarray)
    np.testing.assert_array_equal(mean.get(), host.predict(X))


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
@pytest.mark.card
def test_real_torch_tensors():
    import torch

    X = torch.rand(60, 2, device="cuda", dtype=torch.float64)
    model = MODELS["ensemble"]().fit(X, X[:, 0])
    mean = model.predict(X)
    assert (type(mean), mean.device) == (torch.Tensor, X.device)
    np.testing.assert_array_equal(mean.cpu().numpy(), model.predict(X.cpu().numpy()))
