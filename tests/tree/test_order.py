import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolerances import DIFFERENCE, ROUNDING, VALUE
from triegp.tree import BitOrder, random_bits, uniform_weights


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_from_phi_sorts_theta_and_takes_differences(phi):
    order = BitOrder.from_phi(phi)
    theta = np.exp(phi - np.max(phi))
    ranked = np.sort(theta)[::-1]
    np.testing.assert_allclose(order.weights, ranked - np.append(ranked[1:], 0.0), **VALUE)
    np.testing.assert_allclose(order.theta, theta, **VALUE)
    assert np.all(np.diff(theta[order.bits]) <= 0)
    assert np.isclose(order.weights.sum(), 1.0)


@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from(["row", "bit"]))
def test_three_ways_to_the_same_order(seed, n_bits, nugget):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal(n_bits)
    first = BitOrder.from_phi(phi, scale=1.5, nugget=nugget)
    second = BitOrder.from_theta(first.theta, scale=1.5, nugget=nugget)
    third = BitOrder.from_weights(first.bits, first.weights, scale=1.5, nugget=nugget)
    for other in (second, third):
        np.testing.assert_array_equal(other.bits, first.bits)
        np.testing.assert_allclose(other.remaining, first.remaining, **VALUE)
    np.testing.assert_allclose(second.phi, phi - phi.max(), **VALUE)


def test_ties_keep_canonical_order():
    np.testing.assert_array_equal(BitOrder.from_phi([0.0, 1.0, 0.0, 1.0]).bits, [1, 3, 0, 2])


def test_nugget_decides_how_many_bits_are_read():
    weights = [0.5, 0.3, 0.2]
    row = BitOrder.from_weights([2, 0, 1], weights, scale=2.0)
    bit = BitOrder.from_weights([2, 0, 1], weights, scale=2.0, nugget="bit")
    assert (row.n_levels, bit.n_levels) == (2, 3)
    np.testing.assert_array_equal(row.key_bits, [2, 0])
    assert np.isclose(row.nugget_variance, 0.4)
    assert bit.nugget_variance == 0
    assert np.isclose(row.prior_variance, 1.6)
    assert np.isclose(bit.prior_variance, 2.0)
    np.testing.assert_allclose(row.levels, [2.0, 1.0, 0.4])


@pytest.mark.parametrize("nugget", ["row", "bit"])
def test_chain_rule_against_central_differences(nugget):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal(6)
    by_level, by_noise = rng.standard_normal(6 + (nugget == "bit")), 0.7
    by_level[0] = 0.0
    by_level[0] = -by_level.sum()  # what every gradient satisfies: only differences of W enter

    def value(phi, scale=1.3):
        order = BitOrder.from_phi(phi, scale=scale, nugget=nugget)
        cumulative = order.levels[0] - order.levels  # W
        # R(0) - W form: the nll depends on differences of levels and on the nugget
        return by_level @ cumulative + by_noise * order.nugget_variance

    order = BitOrder.from_phi(phi, scale=1.3, nugget=nugget)
    step = 1e-6
    numeric = [(value(phi + step * e) - value(phi - step * e)) / (2 * step) for e in np.eye(6)]
    np.testing.assert_allclose(order.phi_gradient(by_level, by_noise), numeric, **DIFFERENCE)
    up, down = value(phi, 1.3 * np.exp(step)), value(phi, 1.3 * np.exp(-step))
    numeric_scale = (up - down) / (2 * step)
    assert np.isclose(order.log_scale_gradient(by_level, by_noise), numeric_scale, **DIFFERENCE)


def test_deep_levels_keep_relative_accuracy():
    order = BitOrder.from_phi([0.0, -300.0, -301.0])
    assert np.isclose(order.remaining[2] / order.remaining[1], np.exp(-1), rtol=ROUNDING)


def test_random_bits_keep_significance_and_are_uniform():
    rng = np.random.default_rng(0)
    draws = [tuple(random_bits([2, 1], rng)) for _ in range(3000)]
    counts = {bits: draws.count(bits) for bits in set(draws)}
    assert set(counts) == {(0, 1, 2), (0, 2, 1), (2, 0, 1)}
    assert min(counts.values()) > 900  # 1000 expected, sd 26
    bits = random_bits([7, 1, 32], rng)
    rank = np.argsort(bits)
    for start, stop in [(0, 7), (7, 8), (8, 40)]:
        assert np.all(np.diff(rank[start:stop]) > 0)


def test_uniform_weights():
    np.testing.assert_allclose(uniform_weights(4), 0.25)
    np.testing.assert_allclose(uniform_weights(4, last=0.7), [0.1, 0.1, 0.1, 0.7])
    np.testing.assert_allclose(uniform_weights(1, last=1.0), [1.0])


def test_orders_are_values():
    a, b = (BitOrder.from_weights([0, 2, 1], [0.5, 0.25, 0.25]) for _ in range(2))
    other = BitOrder.from_weights([0, 1, 2], [0.5, 0.25, 0.25])
    bit = BitOrder.from_weights([0, 2, 1], [0.5, 0.25, 0.25], nugget="bit")
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b, other, bit}) == 3
    assert a != "an order"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BitOrder.from_phi([]), "phi must not be empty"),
        (lambda: BitOrder.from_phi([0.0, np.nan]), "phi must be finite, got nan at position 1"),
        (lambda: BitOrder.from_phi([[0.0]]), "phi must be one-dimensional"),
        (lambda: BitOrder.from_phi(["a"]), "phi must be an array of real numbers"),
        (lambda: BitOrder.from_theta([0.5, 0.2]), "theta must have maximum 1, got 0.5"),
        (lambda: BitOrder.from_theta([1.0, -0.2]), "theta must not be negative, got -0.2"),
        (lambda: BitOrder.from_weights([0, 2], [0.5, 0.5]), "bits must be a permutation of 0..1"),
        (lambda: BitOrder.from_weights([0, 0], [0.5, 0.5]), "bits must be a permutation of 0..1"),
        (lambda: BitOrder.from_weights([0.0, 1.0], [0.5, 0.5]), "bits must be a vector of integ"),
        (lambda: BitOrder.from_weights([0, 1], [0.5]), "weights must have 2 entries, got 1"),
        (lambda: BitOrder.from_weights([0, 1], [1.5, -0.5]), "weights must not be negative, got"),
        (lambda: BitOrder.from_weights([0, 1], [0.5, 0.4]), "weights must sum to 1, got 0.9"),
        (lambda: BitOrder.from_phi([0.0], scale=0.0), "scale must be positive and finite, got 0"),
        (lambda: BitOrder.from_phi([0.0], scale="x"), "scale must be a positive number, got 'x'"),
        (lambda: BitOrder.from_phi([0.0], nugget="leaf"), "nugget must be one of 'row', 'bit'"),
        (lambda: random_bits([3, 0], np.random.default_rng(0)), "precision must be positive"),
        (lambda: uniform_weights(0), "n_bits must be a positive integer, got 0"),
        (lambda: uniform_weights(3, last=1.5), r"last must lie in \[0, 1\], got 1.5"),
        (lambda: uniform_weights(1, last=0.5), "last must be 1 for a single bit, got 0.5"),
        (lambda: BitOrder.from_weights([0, 1], [1.0, 0.0]).phi, "phi is not finite"),
        (
            lambda: BitOrder.from_phi([0.0, 1.0]).phi_gradient([1.0, 2.0, 3.0], 0.0),
            "by_level must have 2 entries, got 3",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
