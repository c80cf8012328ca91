"""Cells: sums of rows by the first bits of their keys, against the rows themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolerances import DENSE, VALUE
from triegp.encoding.codes import pack_codes, select_codes
from triegp.mixture.cells import (
    Units,
    add_rows,
    cell_rows,
    condition_cells,
    integer_rows,
    join_cells,
    leave_out_rows,
    limit_cells,
    sum_rows,
    sum_squares,
)
from triegp.tree.likelihood import likelihood
from triegp.tree.order import BitOrder, cut_order, random_bits, uniform_weights
from triegp.tree.posterior import condition, leave_one_out, log_evidence, predict
from triegp.tree.rows import Rows
from triegp.tree.trie import build_trie

NOISE = 0.05


def problem(seed, n_rows=60, n_features=3, precision=4, weighted=False):
    rng = np.random.default_rng(seed)
    codes = pack_codes(rng.integers(0, 1 << precision, (n_rows, n_features)), precision)
    order = BitOrder.from_weights(
        random_bits(codes.precision, rng), uniform_weights(codes.n_bits, 0.1), scale=1.3
    )
    weight = rng.integers(1, 4, n_rows).astype(float) if weighted else None
    return codes, order, Rows(rng.standard_normal((n_rows, 1)), weight=weight)


def units_of(rows):
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    return Units(
        (float(np.abs(weight * rows.y[:, 0]).max()),),
        (float((weight * rows.y[:, 0] ** 2).max()),),
        None if rows.weight is None else float(weight.max()),
    )


def cells_of(codes, order, rows, n_levels):
    return sum_rows(codes, order.bits[:n_levels], integer_rows(rows, units_of(rows)))


def posterior_of(codes, order, rows, n_levels):
    cells = cells_of(codes, order, rows, n_levels)
    units = units_of(rows)
    found = cell_rows(cells, sum_squares(rows, units), units, unit=1.0, divided=False)
    return condition_cells(cells, order, found, NOISE, np.float64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_levels", [1, 3, 6, 11])
def test_cells_predict_as_the_rows_under_the_cut_order(n_levels, weighted):
    codes, order, rows = problem(n_levels, weighted=weighted)
    cut, (found,) = posterior_of(codes, order, rows, n_levels)
    trie = build_trie(codes, cut)
    expected = condition(trie, codes, cut, rows.y[:, 0], NOISE, sample_weight=rows.weight)
    new, _, _ = problem(99, n_rows=200)
    for one, other in zip(predict(found, new)[:2], predict(expected, new)[:2], strict=True):
        np.testing.assert_allclose(one, other, **VALUE)
    direct = likelihood(trie, cut, rows.y[:, 0], NOISE, sample_weight=rows.weight)
    assert log_evidence(found) == pytest.approx(-direct.nll, rel=DENSE)


@pytest.mark.parametrize("n_levels", [1, 4, 11])
def test_rows_are_left_out_as_from_the_trie_of_rows(n_levels):
    codes, order, rows = problem(n_levels)
    cut, (found,) = posterior_of(codes, order, rows, n_levels)
    trie = build_trie(codes, cut)
    expected = leave_one_out(condition(trie, codes, cut, rows.y[:, 0], NOISE))
    left = leave_out_rows(found, codes, rows.y[:, 0], np.ones(rows.n_rows))
    np.testing.assert_allclose(left.mean, expected.mean, **VALUE)
    np.testing.assert_allclose(left.var, expected.var, **VALUE)


def test_rows_that_are_not_in_the_cells_cannot_be_left_out():
    codes, order, rows = problem(0, n_rows=5)
    _, (found,) = posterior_of(codes, order, rows, 11)
    new, _, more = problem(1, n_rows=40)
    with pytest.raises(ValueError, match="must be in the cells"):
        leave_out_rows(found, new, more.y[:, 0], np.ones(40))


@given(st.integers(0, 10_000), st.integers(1, 40), st.booleans())
def test_any_division_into_pieces_gives_the_same_bits(seed, most, weighted):
    codes, order, rows = problem(seed, weighted=weighted)
    rng = np.random.default_rng(seed)
    integers = integer_rows(rows, units_of(rows))
    whole = limit_cells(sum_rows(codes, order.key_bits, integers), most)
    cuts = np.sort(rng.choice(np.arange(1, rows.n_rows), rng.integers(1, 6), replace=False))
    found = None
    for some in rng.permutation(len(cuts) + 1):
        part = np.split(np.arange(rows.n_rows), cuts)[some]
        cells = sum_rows(select_codes(codes, part), order.key_bits, integers[part])
        cells = limit_cells(cells, most)
        found = cells if found is None else limit_cells(join_cells(found, cells), most)
    assert found.n_levels == whole.n_levels
    assert found.n_levels == 1 or found.n_cells <= most
    for name in ("keys", "lcp", "sums"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


def test_keys_of_several_words_are_joined_and_cut():
    codes, order, rows = problem(3, n_rows=300, n_features=10, precision=16)
    integers = integer_rows(rows, units_of(rows))
    some, others = np.arange(150), np.arange(150, 300)
    parts = [
        sum_rows(select_codes(codes, part), order.key_bits, integers[part])
        for part in (some, others)
    ]
    joined, whole = join_cells(*parts), sum_rows(codes, order.key_bits, integers)
    np.testing.assert_array_equal(joined.keys, whole.keys)
    limited = limit_cells(whole, 100)
    expected = sum_rows(codes, order.bits[: limited.n_levels], integers)
    np.testing.assert_array_equal(limited.keys, expected.keys)
    np.testing.assert_array_equal(limited.sums, expected.sums)


@pytest.mark.parametrize("weighted", [False, True])
def test_added_rows_equal_conditioning_on_all(weighted):
    codes, order, rows = problem(5, n_rows=200, weighted=weighted)
    half, rest = np.arange(120), np.arange(120, 200)
    _, (whole,) = posterior_of(codes, order, rows, 6)
    _, (part,) = posterior_of(select_codes(codes, half), order, rows.select(half), 6)
    grown = add_rows(part, select_codes(codes, rest), rows.select(rest).target(0))
    np.testing.assert_array_equal(grown.keys, whole.keys)
    new, _, _ = problem(99, n_rows=200)
    for one, other in zip(predict(grown, new)[:2], predict(whole, new)[:2], strict=True):
        np.testing.assert_allclose(one, other, **VALUE)
    assert log_evidence(grown) == pytest.approx(log_evidence(whole), rel=DENSE)


def test_cut_orders_keep_their_first_weights():
    _, order, _ = problem(0)
    cut = cut_order(order, 4)
    np.testing.assert_array_equal(cut.remaining[:5], order.remaining[:5])
    assert cut.n_used == 4
    assert cut.nugget_variance == order.remaining[4]
    assert cut.scale == order.scale
    with pytest.raises(ValueError, match="n_levels must lie in"):
        cut_order(order, order.n_levels + 1)
    bit = BitOrder.from_weights([0, 1], [0.5, 0.5], nugget="bit")
    with pytest.raises(ValueError, match="nugget='row'"):
        cut_order(bit, 1)
