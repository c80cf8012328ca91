"""A device whose memory runs out: batches are halved, and what cannot be done says so."""

import contextlib

import numpy as np
import pytest

from device_arrays import OutOfMemoryError
from on_card import ON_CARD
from simulated_card import strict_card
from triegp.engines import Candidate, CpuEngine
from triegp.engines.cuda import CudaEngine, engine


@pytest.fixture(scope="module", autouse=True)
def strict():
    with contextlib.nullcontext() if ON_CARD else strict_card():
        yield


def candidates(n_orders, n_rows=6):
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (n_rows, 1), dtype=np.uint8)
    y, variance = rng.standard_normal(n_rows), np.full(1, 0.1)
    levels = np.linspace(1, 0, 9)
    return [Candidate(packed, rng.permutation(8), levels, y, variance) for _ in range(n_orders)]


def test_a_batch_that_does_not_fit_is_halved(monkeypatch):
    real, sizes = engine._evaluate_batch, []

    def crowded(some, *options):
        sizes.append(len(some))
        if len(some) > 2:
            raise OutOfMemoryError("Out of memory allocating 8 bytes")
        return real(some, *options)

    given = candidates(5)
    expected = CudaEngine().evaluate_many(given, np.dtype(float), True)
    monkeypatch.setattr(engine, "_evaluate_batch", crowded)
    found = CudaEngine().evaluate_many(given, np.dtype(float), True)
    assert sizes == [5, 2, 3, 1, 2]
    for one, two, host in zip(
        found, expected, CpuEngine().evaluate_many(given, np.dtype(float), True), strict=True
    ):
        assert one.sums == two.sums
        np.testing.assert_array_equal(one.by_level, two.by_level)
        np.testing.assert_allclose(one.by_level, host.by_level, rtol=1e-10, atol=1e-10)


def test_one_order_that_does_not_fit_is_an_error(monkeypatch):
    def full(*_):
        raise OutOfMemoryError("Out of memory allocating 8 bytes")

    monkeypatch.setattr(engine, "_evaluate_batch", full)
    with pytest.raises(MemoryError, match="Out of memory"):
        CudaEngine().evaluate_many(candidates(3), np.dtype(float), True)


def test_other_errors_are_not_tried_again(monkeypatch):
    calls = []

    def wrong(*_):
        calls.append(1)
        raise ValueError("not about memory")

    monkeypatch.setattr(engine, "_evaluate_batch", wrong)
    with pytest.raises(ValueError, match="not about memory"):
        CudaEngine().evaluate_many(candidates(3), np.dtype(float), True)
    assert len(calls) == 1
