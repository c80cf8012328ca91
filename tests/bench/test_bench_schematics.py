import sys
from itertools import pairwise

import numpy as np
import pytest

import oracle
from tolerances import HANDFUL, LAST_BIT, SAMPLED

pytest.importorskip("matplotlib", reason="the figures are drawn with matplotlib")

from bench import merges, schematics


def shared(a, b):
    """Leading characters that two strings have in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def text(bits):
    return "".join(map(str, bits))


def test_tree_is_the_kernel_by_prefixes():
    data = schematics.tree_data()
    keys = [f"{code:03b}" for (code,) in schematics.ROWS]
    in_order = sorted(range(len(keys)), key=keys.__getitem__)
    assert data.row.tolist() == in_order
    assert [text(bits) for bits in data.bits] == sorted(keys)
    by_hand = [
        [sum(schematics.WEIGHTS[: shared(keys[a], keys[b])]) for b in in_order] for a in in_order
    ]
    np.testing.assert_allclose(data.kernel, by_hand, atol=LAST_BIT)
    np.testing.assert_allclose(data.weights, schematics.WEIGHTS, rtol=HANDFUL)
    np.testing.assert_allclose(data.share, [0, 0.5, 0.8, 1], atol=LAST_BIT)
    assert data.depth.tolist() == [shared(a, b) for a, b in pairwise(sorted(keys))]


def test_draws_are_nested_sums_of_increments():
    data = schematics.draws_data(n_samples=3)
    n_levels, n_cells = len(data.weights), 2 ** len(data.weights)
    assert data.values.shape == (n_levels + 1, n_cells, 3)
    np.testing.assert_allclose(data.x * n_cells, np.arange(n_cells) + 0.5)
    assert not data.values[0].any()
    for depth, (before, after) in enumerate(pairwise(data.values), start=1):
        increments = (after - before).reshape(2**depth, -1, 3)
        np.testing.assert_allclose(np.ptp(increments, axis=1), 0, atol=LAST_BIT)
        assert np.unique(increments[:, 0].round(12)).size == increments[:, 0].size
        blocks = after.reshape(2**depth, -1, 3)
        assert (blocks == blocks[:, :1]).all()  # constant on the cells of this depth


def test_draws_have_the_kernel_of_their_depth():
    n_samples = 20_000
    data = schematics.draws_data(n_samples=n_samples, seed=0)
    n_levels = data.weights.size
    bits = (np.arange(2**n_levels)[:, None] >> np.arange(n_levels)[::-1]) & 1
    for depth, values in enumerate(data.values):
        weights = np.where(np.arange(n_levels) < depth, data.weights, 0)
        expected = oracle.kernel(bits, bits, weights)
        # An entry's standard error is at most sqrt(2 / n); there are 256 of them.
        limit = SAMPLED["max"] * np.sqrt(2 / n_samples) + LAST_BIT
        assert np.abs(values @ values.T / n_samples - expected).max() < limit


def test_increments_of_different_cells_and_levels_are_uncorrelated():
    n_samples = 20_000
    data = schematics.draws_data(n_samples=n_samples, seed=1)
    steps = np.diff(data.values, axis=0)
    n_levels = data.weights.size
    rows = [
        step[:: 2 ** (n_levels - depth)] / np.sqrt(data.weights[depth - 1])
        for depth, step in enumerate(steps, start=1)
    ]
    correlation = np.vstack(rows) @ np.vstack(rows).T / n_samples
    expected = np.eye(2 ** (n_levels + 1) - 2)
    assert np.abs(correlation - expected).max() < SAMPLED["max"] * np.sqrt(2 / n_samples)


@pytest.mark.parametrize("bits", [schematics.BITS, (7, 0, 4, 3, 1, 6, 5, 2)])
def test_keys_are_the_bits_of_codes_in_the_given_order(bits):
    point = (0.7, 0.35)
    data = schematics.order_data(point, bits)

    def key(codes):
        canonical = "".join(f"{code:04b}" for code in codes)
        return "".join(canonical[b] for b in bits)

    point_codes = [int(value * 16) for value in point]
    assert text(data.bits) == "".join(f"{code:04b}" for code in point_codes)
    assert text(data.key) == key(point_codes)
    assert [bits[place] for place in data.place] == list(range(8))
    assert sorted(map(tuple, data.codes.tolist())) == list(np.ndindex(16, 16))
    keys = [key(codes) for codes in data.codes.tolist()]
    assert [text(k) for k in data.keys] == keys
    assert data.rank.tolist() == [int(k, 2) for k in keys]
    assert data.lcp.tolist() == [shared(k, key(point_codes)) for k in keys]


def test_parts_by_label_sum_to_the_matrix():
    whole, *parts = schematics.sros_data()
    (p, p_cols), (u, u_cols) = schematics.LABELS, schematics.FACTORS
    by_hand = [
        [u[a] * u_cols[b] * (p[a] == p_cols[b]) for b in range(len(p))] for a in range(len(p))
    ]
    np.testing.assert_array_equal(whole, by_hand)
    np.testing.assert_array_equal(sum(parts), whole)
    assert len(parts) == max(p) + 1
    for label, part in enumerate(parts):
        rows = np.where(np.equal(p, label), u, 0)
        cols = np.where(np.equal(p_cols, label), u_cols, 0)
        np.testing.assert_array_equal(part, np.outer(rows, cols))


def test_parts_by_level_sum_to_the_kernel_of_the_tree():
    tree = schematics.tree_data()
    whole, *parts = schematics.kernel_data(tree.bits, tree.weights)
    np.testing.assert_allclose(whole, tree.kernel, atol=LAST_BIT)
    np.testing.assert_allclose(sum(parts), whole, atol=LAST_BIT)
    expected = tree.weights[:, None, None] * oracle.level_matrices(tree.bits)
    np.testing.assert_allclose(parts, expected, atol=LAST_BIT)


def test_files_are_the_same_every_time(tmp_path):
    had_pyplot = "matplotlib.pyplot" in sys.modules
    for name in ("first", "second"):
        schematics.main(tmp_path / name)
    first, second = (
        {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()}
        for name in ("first", "second")
    )
    assert sorted(first) == ["draws.svg", "merges.svg", "order.svg", "sros.svg", "tree.svg"]
    assert first == second
    for content in first.values():
        assert content.startswith(b"<?xml")
        assert b"dc:date" not in content
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot


def test_messages_of_the_worked_tree_are_those_of_dense_algebra():
    meetings, total = merges.merges_data()
    tree = schematics.tree_data()
    assert ["".join(map(str, key)) for key in tree.bits] == list(merges.KEYS)
    A = tree.kernel + merges.NOISE * np.eye(4)
    y = np.array(merges.TARGETS)
    _, log_det = np.linalg.slogdet(2 * np.pi * A)
    assert total == pytest.approx((log_det + y @ np.linalg.solve(A, y)) / 2, rel=HANDFUL)
    merged = meetings[1].merged  # rows 110 and 111 about the function at depth 2, of variance 0.8
    gain = np.linalg.solve(A[2:, 2:], np.full(2, 0.8))
    assert 0.8 / (0.8 + merged[1]) * merged[0] == pytest.approx(gain @ y[2:], rel=HANDFUL)
