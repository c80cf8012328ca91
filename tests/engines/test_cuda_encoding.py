"""Codes that the CUDA engine makes of rows: the same bits as the CPU's encoder."""

import contextlib

import numpy as np
import pytest

from on_card import ON_CARD
from simulated_card import strict_card
from triegp.devices import to_host
from triegp.encoding import BitEncoder
from triegp.encoding import grids as grids_module
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine
from triegp.engines.cuda import CudaEngine

CPU, CUDA = CpuEngine(n_threads=1), CudaEngine()
N_ROWS = 20_000 if ON_CARD else 21


@pytest.fixture(scope="module", autouse=True)
def strict():
    with contextlib.nullcontext() if ON_CARD else strict_card():
        yield


def table(kind, seed=0, n=N_ROWS):
    """Rows of four features: smooth, with ties, of huge range, constant."""
    rng = np.random.default_rng(seed)
    X = np.stack(
        [
            rng.standard_normal(n),
            rng.integers(0, 3, n) / 3.0,
            rng.choice([-1.7e308, 1e-300, 1.6e308], n),
            np.full(n, 2.5),
        ],
        axis=1,
    )
    if kind == "float32":
        X[:, 2] = rng.standard_normal(n)
    return (1e3 * X[:, [0, 1, 3]]).astype(np.int64) if kind == "int64" else X.astype(kind)


def encoders(X, outside="clip"):
    """Two scalings, with and without shift, several widths."""
    rng, d = np.random.default_rng(7), X.shape[1]
    found = []
    for scaling in ("minmax", "ecdf"):
        one = BitEncoder(scaling=scaling, precision=[11, 3, 31, 1][:d], outside=outside).fit(X)
        found += [one, *(one.with_shift(rng.random(d)) for _ in range(2))]
    return found


def check(found, expected):
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(to_host(one.packed), two.packed)
        np.testing.assert_array_equal(one.precision, two.precision)
        assert (one.unrelated is None) == (two.unrelated is None)
        if one.unrelated is not None:
            np.testing.assert_array_equal(one.unrelated, two.unrelated)


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "longdouble"])
@pytest.mark.parametrize("outside", ["clip", "unrelated"])
def test_same_bits_as_the_cpu(kind, outside):
    X, new = table(kind), table(kind, seed=1)
    if kind != "longdouble":
        new[0, 0] *= 100  # outside the box
    all_of_them = encoders(X, outside)
    for rows in (X, new):
        check(encode_grids(all_of_them, rows, CUDA), encode_grids(all_of_them, rows, CPU))


def test_rows_on_the_device_and_blocks_of_rows(monkeypatch):
    X = table("float64")
    expected = encode_grids(encoders(X), X, CPU)
    check(encode_grids(encoders(X), CUDA.hold(X), CUDA), expected)
    monkeypatch.setattr(grids_module, "row_blocks", lambda n, d, _: [slice(0, 8), slice(8, n)])
    found = encode_grids(encoders(X), CUDA.hold(X), CUDA)
    check(found, expected)
    assert all(type(one.packed) is type(CUDA.hold(X)) for one in found)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(value):
    X = table("float64")
    new = X.copy()
    new[5, 1] = value
    for engine in (CPU, CUDA):
        with pytest.raises(ValueError, match=r"must be finite, got .* in column 1 at row 5"):
            encode_grids(encoders(X), engine.hold(new), engine)


def test_rows_outside_that_are_an_error():
    X = table("float64")
    new = X.copy()
    new[3, 0] = 1e3
    for engine in (CPU, CUDA):
        with pytest.raises(ValueError, match=r"training box, got 1000\.0 in column 0 at row 3"):
            encode_grids(encoders(X, "error"), engine.hold(new), engine)
