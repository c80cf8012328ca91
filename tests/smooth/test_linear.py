"""The smooth part as models use it: rescaled, extended, exact or in linear time."""

import numpy as np
import pytest

import oracle
from tolerances import CHAINED, ROUNDED_WEIGHTS, ROUNDING, SQUARED_DISTANCES, both
from triegp.smooth import KERNELS, Kernel, make_induced
from triegp.smooth.dense import make_dense
from triegp.smooth.linear import Linear

CLOSE = both(SQUARED_DISTANCES)
X = np.random.default_rng(0).standard_normal((40, 2))
NEW = np.random.default_rng(1).standard_normal((7, 2))
ALPHA = np.random.default_rng(2).standard_normal((40, 3))


def kernel_of(name="matern32", scale=1.3):
    return Kernel(name, np.array([0.9, 1.7]), scale)


def part_of(kernel, kind):
    if kind == "dense":
        return make_dense(kernel, X / kernel.lengthscale, keep=False)
    sizes = {"inducing": (40, 0), "neighbours": (0, 40), "approximate": (9, 5)}[kind]
    return Linear(make_induced(kernel, X, *sizes))


def answers(smooth):
    """Everything that does not depend on random numbers."""
    points = smooth.read(NEW)
    members = np.array([[0, 3, 7], [5, 2, -1]], np.int32)
    return {
        "multiply": smooth.multiply(ALPHA),
        "columns": smooth.columns(np.array([4, 1])),
        "blocks": smooth.blocks(members),
        "mean": smooth.mean(points, smooth.prepare(ALPHA[:, 0].copy())),
        "cross": smooth.cross(points),
        "own": smooth.own(points),
    }


EXACT = [(kind, name) for kind in ("inducing", "neighbours", "dense") for name in KERNELS]
EXACT.remove(("neighbours", "rbf"))  # matrices of rows that are nearly singular


@pytest.mark.parametrize(("kind", "name"), EXACT)
def test_it_is_the_kernel(kind, name):
    kernel = kernel_of(name)
    dense = oracle.smooth_kernel(name, 1.3, kernel.lengthscale, X, X)
    cross = oracle.smooth_kernel(name, 1.3, kernel.lengthscale, X, NEW)
    found = answers(part_of(kernel, kind))
    close = CLOSE if kind == "dense" else ROUNDED_WEIGHTS
    np.testing.assert_allclose(found["multiply"], dense @ ALPHA, **close)
    np.testing.assert_allclose(found["columns"], dense[:, [4, 1]], **close)
    np.testing.assert_allclose(found["cross"], cross, **close)
    np.testing.assert_allclose(found["mean"], cross.T @ ALPHA[:, 0], **close)
    np.testing.assert_allclose(np.diag(found["own"]), 1.3, **close)
    for block, rows in zip(found["blocks"], ([0, 3, 7], [5, 2]), strict=True):
        k = len(rows)
        np.testing.assert_allclose(block[:k, :k], dense[np.ix_(rows, rows)], **close)
        assert not block[k:].any()
        assert not block[:, k:].any()


@pytest.mark.parametrize("kind", ["inducing", "neighbours", "approximate", "dense"])
def test_rescaled_it_is_the_kernel_times_a_factor(kind):
    smooth = part_of(kernel_of(), kind)
    before = answers(smooth)
    larger = smooth.rescaled(0.5).rescaled(5.0)
    assert larger.kernel.scale == pytest.approx(2.5 * 1.3)
    np.testing.assert_array_equal(larger.kernel.lengthscale, smooth.kernel.lengthscale)
    for name, found in answers(larger).items():
        np.testing.assert_allclose(found, 2.5 * before[name], rtol=ROUNDING, atol=ROUNDING)
    for name, found in answers(smooth).items():
        np.testing.assert_array_equal(found, before[name])
    draws, new = (
        part.draw(4, np.random.default_rng(0), part.read(NEW)) for part in (smooth, larger)
    )
    for a, b in zip(draws, new, strict=True):
        np.testing.assert_allclose(b, np.sqrt(2.5) * a, rtol=CHAINED, atol=CHAINED)


@pytest.mark.parametrize("kind", ["inducing", "approximate", "dense"])
def test_rows_can_be_added_after_it_was_rescaled(kind):
    smooth = part_of(kernel_of(), kind)
    more = smooth.rescaled(2.0).extend(NEW)
    other = smooth.extend(NEW).rescaled(2.0)
    x = np.random.default_rng(3).standard_normal((47, 2))
    np.testing.assert_array_equal(more.multiply(x), other.multiply(x))
    assert more.kernel.scale == 2.6
