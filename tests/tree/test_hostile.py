"""Finite input never gives NaN: the ends of the ranges, and degenerate rows."""

import numpy as np
import pytest

from tolerances import CHAINED, GRADIENT, VALUE
from triegp.encoding import Codes, pack_codes
from triegp.tree import BitOrder, build_trie, condition, leave_one_out, likelihood, predict


def random_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n)
    return pack_codes(rng.integers(0, 256, (n, 2)), 8), y / np.abs(y).max()


@pytest.mark.parametrize("nugget", ["row", "bit"])
def test_noise_down_to_1e_300(nugget):
    codes = pack_codes(np.arange(50)[:, None] * 5, 8)
    y = np.random.default_rng(0).standard_normal(50)
    weights = np.append(np.full(7, 1 / 7), 0.0) if nugget == "row" else np.full(8, 1 / 8)
    order = BitOrder.from_weights(range(8), weights, nugget=nugget)
    trie = build_trie(codes, order)
    got = likelihood(trie, order, y, 1e-300, gradient=nugget == "bit")
    assert np.isfinite(got.nll)
    posterior = condition(trie, codes, order, y, 1e-300)
    for prediction in (predict(posterior, codes), leave_one_out(posterior)):
        assert np.isfinite(prediction.mean).all()
        assert (prediction.var >= 0).all()
    if nugget == "bit":  # rows differ: so little noise does not matter any more
        assert np.isfinite(got.gradient.by_level).all()
        close = likelihood(trie, order, y, 1e-18).nll
        np.testing.assert_allclose(got.nll, close, **VALUE)
        np.testing.assert_allclose(predict(posterior, codes).mean, y, **VALUE)


def test_twins_that_disagree_at_tiny_noise():
    order = BitOrder.from_weights([0, 1], [0.5, 0.5], nugget="bit")
    trie = build_trie(pack_codes([[1], [1], [2]], 2), order)
    got = likelihood(trie, order, [0.0, 2.0, 1.0], 1e-300)
    np.testing.assert_allclose(got.nll, 1e300, rtol=CHAINED)  # e^2 / (2 v) = 4 / (4e-300)
    with pytest.raises(OverflowError, match="the gradient exceeds float64"):
        likelihood(trie, order, [0.0, 2.0, 1.0], 1e-300, gradient=True)


def test_targets_up_to_1e150():
    codes, y = random_rows(50)
    order = BitOrder.from_phi(np.linspace(0, -2, 16))
    trie = build_trie(codes, order)
    huge = likelihood(trie, order, y * 1e150, 0.1, gradient=True)
    plain, zero = (likelihood(trie, order, y * k, 0.1).nll for k in (1, 0))
    np.testing.assert_allclose(huge.nll / 1e300, plain - zero, rtol=CHAINED)
    assert np.isfinite(huge.gradient.by_level).all()
    mean = predict(condition(trie, codes, order, y * 1e150, 0.1), codes).mean
    expected = predict(condition(trie, codes, order, y, 0.1), codes).mean
    np.testing.assert_allclose(mean / 1e150, expected, **VALUE)


def test_a_value_beyond_float64_is_inf_and_has_no_gradient():
    codes, y = random_rows(50)
    order = BitOrder.from_phi(np.linspace(0, -2, 16), scale=1e-20)
    trie = build_trie(codes, order)
    assert likelihood(trie, order, y * 1e150, 1e-20).nll == np.inf
    with pytest.raises(OverflowError, match="the nll exceeds float64"):
        likelihood(trie, order, y * 1e150, 1e-20, gradient=True)


def test_a_gradient_beyond_float32_says_so():
    order = BitOrder.from_weights([0, 1], [0.5, 0.5], nugget="bit")
    trie = build_trie(pack_codes([[1], [1]], 2), order)
    with pytest.raises(OverflowError, match="the gradient exceeds float32"):
        likelihood(trie, order, [0.0, 1.0], 1e-25, gradient=True, dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("codes", [[[0], [3]], [[2], [3]], [[3]]])
def test_a_gradient_that_overflows_at_the_root_says_so(dtype, codes):
    """An overflow is an OverflowError, and no warning of numpy's before it."""
    size, noise = {"float64": (1e140, 1e-20), "float32": (1e14, 1e-10)}[dtype]
    order = BitOrder.from_weights([0, 1], [0.5, 0.5], scale=noise, nugget="bit")
    trie = build_trie(pack_codes(codes, 2), order)
    y = np.full(len(codes), size)
    assert np.isfinite(likelihood(trie, order, y, noise, dtype=dtype).nll)
    with pytest.raises(OverflowError, match=f"the gradient exceeds {dtype}"):
        likelihood(trie, order, y, noise, gradient=True, dtype=dtype)


def test_a_million_identical_rows():
    n = 1_000_000
    y = np.random.default_rng(0).standard_normal(n)
    codes = Codes(np.full((n, 2), 173, np.uint8), np.array([8, 8]))
    order = BitOrder.from_weights(range(16), np.full(16, 1 / 16))
    trie = build_trie(codes, order)
    got = likelihood(trie, order, y, 0.25, gradient=True)
    s, k = 0.25 + 1 / 16, 15 / 16  # K = k 1 1', a rank-one matrix
    top = s + n * k
    square = (y @ y) / s - k * y.sum() ** 2 / (s * top)
    nll = 0.5 * (square + (n - 1) * np.log(s) + np.log(top) + n * np.log(2 * np.pi))
    np.testing.assert_allclose(got.nll, nll, **VALUE)
    assert np.isfinite(got.gradient.by_level).all()
    one = Codes(codes.packed[:1], codes.precision)
    prediction = predict(condition(trie, codes, order, y, 0.25), one)
    np.testing.assert_allclose(prediction.mean, k * y.sum() / top, **VALUE)
    np.testing.assert_allclose(prediction.var, k * s / top, **VALUE)


def test_one_row():
    order = BitOrder.from_weights([0, 1], [0.5, 0.5])
    codes = pack_codes([[2]], 2)
    trie = build_trie(codes, order)
    got = likelihood(trie, order, [0.7], 0.1, gradient=True)
    v = 1.1
    by_noise = 0.5 * (1 / v - 0.49 / v**2)
    np.testing.assert_allclose(got.nll, 0.5 * (np.log(2 * np.pi * v) + 0.49 / v), **VALUE)
    np.testing.assert_allclose(got.gradient.by_noise, by_noise, **GRADIENT)
    np.testing.assert_allclose(got.gradient.by_level, [-by_noise, by_noise], **GRADIENT)
    posterior = condition(trie, codes, order, [0.7], 0.1)
    np.testing.assert_allclose(predict(posterior, codes).mean, 0.7 * 0.5 / 1.1, **VALUE)
    alone = leave_one_out(posterior)
    np.testing.assert_allclose((alone.mean[0], alone.var[0]), (0.0, 0.5), **VALUE)


def test_phi_of_enormous_spread():
    codes, y = random_rows(40)
    order = BitOrder.from_phi(np.linspace(0, -2000, 16))
    got = likelihood(build_trie(codes, order), order, y, 0.1, gradient=True)
    assert np.isfinite(got.nll)
    assert np.isfinite(order.phi_gradient(got.gradient.by_level, got.gradient.by_noise)).all()
