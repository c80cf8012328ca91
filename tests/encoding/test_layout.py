"""Working columns: gaps, categories, calendars, and values that training has not seen."""

import numpy as np
import pytest

from triegp.encoding import layout
from triegp.encoding.categories import FEW_ROWS, order_categories
from triegp.encoding.columns import Columns
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.layout import (
    N_VARIANTS,
    fill_unseen,
    find_unseen,
    fit_layout,
    work_out,
    working_precision,
)
from triegp.encoding.tables import read_table


def lay_out(cells, y=None, **options):
    data, columns = read_table(np.array(cells, dtype=object), None, **options)
    return (*fit_layout(data, columns, y), data)


def with_categories(n, n_categories, effect, seed=0):
    """Codes and targets of categories with random effects."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_categories, size=n)
    y = effect * rng.standard_normal(n_categories)[codes] + rng.standard_normal(n)
    columns = Columns(("category", "number"), (tuple(map(float, range(n_categories))), ()))
    return np.stack([codes.astype(float), rng.random(n)], axis=1), columns, y[:, None]


def test_numbers_without_gaps_are_left_alone():
    X = np.random.default_rng(0).random((40, 3))
    layout, working = fit_layout(X, Columns(("number",) * 3, ((),) * 3), None)
    assert layout.plain
    assert working is X
    assert work_out(layout, X) is X
    assert find_unseen(layout, X) is None
    assert working_precision(layout, 8) == 8


def test_gaps_are_filled_by_the_median_and_marked():
    layout, working, _ = lay_out([[1.0, 5], [None, 6], [3.0, 7], [9.0, 8]])
    assert layout.roles == ("value", "missing", "value")
    np.testing.assert_array_equal(working[:, 0], [1, 3, 3, 9])
    np.testing.assert_array_equal(working[:, 1], [0, 1, 0, 0])
    assert layout.names(["a", "b"]) == ["a", "a_missing", "b"]
    assert layout.names(["a", "a_missing"]) == ["a", "a_missing_", "a_missing"]
    np.testing.assert_array_equal(working_precision(layout, 8), [8, 1, 8])
    np.testing.assert_array_equal(working_precision(layout, [3, 5]), [3, 1, 5])


def test_a_column_of_gaps_says_nothing():
    layout, working, data = lay_out([[None, 1.0], [None, 2.0]])
    assert layout.roles == ("value", "value")
    np.testing.assert_array_equal(working, [[0, 1], [0, 2]])
    np.testing.assert_array_equal(work_out(layout, np.array([[7.0, 1.0]])), [[0, 1]])
    assert find_unseen(layout, data) is None


def test_categories_are_ranked_by_shrunken_means():
    n, means = 600, [3.0, -1.0, 0.0, 7.0]
    codes = np.arange(n) % 4
    y = np.array(means)[codes] + 0.1 * np.random.default_rng(0).standard_normal(n)
    columns = Columns(("category",), (("a", "b", "c", "d"),))
    layout, working = fit_layout(codes[:, None].astype(float), columns, y[:, None])
    assert layout.roles == ("rank", "listed")
    np.testing.assert_array_equal(layout.tables[0], [2, 0, 1, 3])
    np.testing.assert_array_equal(working[:4], [[2, 0], [0, 1], [1, 2], [3, 3]])
    np.testing.assert_array_equal(working_precision(layout, 8), [2, 2])
    order = np.random.default_rng(1).permutation(n)
    again, _ = fit_layout(codes[order, None].astype(float), columns, y[order, None])
    np.testing.assert_array_equal(again.tables[0], layout.tables[0])


@pytest.mark.parametrize("effect", [0.0, 1.0])
def test_means_of_rare_categories_do_not_tell_the_own_target(effect):
    data, columns, y = with_categories(4000, 1000, effect)
    layout, working = fit_layout(data, columns, y)
    assert layout.roles[:2] == ("mean", "frequency")
    left = y[:, 0] - y[:, 0].mean()
    own = np.corrcoef(work_out(layout, data)[:, 0] + 1e-9 * data[:, 1], left)[0, 1]
    fair = np.corrcoef(working[:, 0] + 1e-9 * data[:, 1], left)[0, 1]
    if effect == 0.0:  # labels without meaning
        assert abs(fair) < 3.0 / np.sqrt(4000)
    else:
        assert 0.3 < fair < own  # without the own row


def test_cross_fitted_means_do_not_depend_on_the_order_of_rows_and_equal_rows_agree():
    data, columns, y = with_categories(500, 100, 1.0)
    data[250:] = data[:250]
    _, working = fit_layout(data, columns, y)
    np.testing.assert_array_equal(working[250:, 0], working[:250, 0])
    order = np.random.default_rng(1).permutation(500)
    _, again = fit_layout(data[order], columns, y[order])
    np.testing.assert_allclose(again[:, 0], working[order, 0], rtol=1e-12)


def test_rare_categories_decide():
    for n, roles in ((500, ("rank", "listed")), (480, ("mean", "frequency", "listed"))):
        codes = np.arange(n) % 10
        columns = Columns(("category",), (tuple(map(float, range(10))),))
        y = np.random.default_rng(0).standard_normal((n, 1))
        layout, _ = fit_layout(codes[:, None].astype(float), columns, y)
        assert layout.roles == roles
    assert FEW_ROWS == 50


def test_unknown_levels_of_an_order_are_unseen():
    data = np.array([[0.0], [1.0], [2.0]])
    layout, _ = fit_layout(data, Columns(("ordered",), (("lo", "mid", "hi"),)), None)
    assert find_unseen(layout, data) is None
    np.testing.assert_array_equal(find_unseen(layout, np.array([[3.0], [0.0]])), [[True], [False]])


def test_the_day_of_the_year_is_that_of_the_calendar():
    days = np.arange("2016-01-01", "2021-01-01", dtype="M8[D]")
    layout, working, _ = lay_out(days[:, None])
    yearday = working[:, layout.roles.index("yearday")]
    first = days == days.astype("M8[Y]").astype("M8[D]")
    assert (yearday[first] == 0).all()
    assert yearday.max() == 365


def test_a_missing_category_is_a_category():
    cells = [["a"], ["b"], [None]] * 100
    y = np.tile([0.0, 5.0, 2.0], 100)[:, None] + 0.1 * np.random.default_rng(0).random((300, 1))
    layout, working, data = lay_out(cells, y)
    assert layout.roles == ("rank", "listed", "missing")
    np.testing.assert_array_equal(working[:3], [[0, 0, 0], [2, 1, 0], [1, 2, 1]])
    assert find_unseen(layout, data) is None
    assert np.isnan(layout.grid[0]).any()


def test_sample_weights_count_as_rows():
    data, columns, y = with_categories(2000, 8, 1.0)
    weight = np.random.default_rng(1).integers(0, 3, 2000)
    rows = np.repeat(np.arange(2000), weight)
    one, _ = fit_layout(data, columns, y, weight.astype(float))
    two, _ = fit_layout(data[rows], columns, y[rows])
    np.testing.assert_array_equal(one.tables[0], two.tables[0])


def test_several_targets_rank_by_what_differs_most():
    rng = np.random.default_rng(0)
    codes = np.arange(800) % 4
    y = rng.standard_normal((800, 2))
    y[:, 1] += 10.0 * np.array([2.0, 0.0, 3.0, 1.0])[codes]
    columns = Columns(("category",), (tuple("abcd"),))
    layout, _ = fit_layout(codes[:, None].astype(float), columns, y)
    np.testing.assert_array_equal(layout.tables[0], [2, 0, 3, 1])


def test_times_have_what_the_calendar_repeats():
    start = np.datetime64("2023-01-02T00:00", "h")  # a Monday
    hours = start + np.arange(0, 24 * 900, 7).astype("timedelta64[h]")
    layout, working, _ = lay_out(hours[:, None])
    assert layout.roles == ("value", "weekday", "hour", "yearday")
    days = (hours - start) / np.timedelta64(24, "h")
    np.testing.assert_array_equal(working[:, 1], np.floor(days) % 7)
    np.testing.assert_allclose(working[:, 2], (24 * days) % 24, atol=1e-6)
    assert working[:, 3].max() < 366
    layout, _, _ = lay_out(hours[:30, None])  # nine days
    assert layout.roles == ("value", "hour")


def test_unseen_values_are_replaced_by_those_of_training():
    cells = [[x, c] for x, c in zip(range(64), "abcd" * 16, strict=True)]
    y = np.tile([3.0, 1.0, 2.0, 0.0], 16)[:, None]
    layout, _, data = lay_out(cells, y)
    data[5, 0], data[6, 1], data[7] = np.nan, 9.0, [np.nan, np.nan]
    unseen = find_unseen(layout, data)
    np.testing.assert_array_equal(np.argwhere(unseen), [[5, 0], [6, 1], [7, 0], [7, 1]])
    variants = fill_unseen(layout, data[[5, 6, 7]], unseen[[5, 6, 7]])
    assert variants.shape == (3 * N_VARIANTS, 2)
    one, two, three = variants.reshape(3, N_VARIANTS, 2)
    np.testing.assert_allclose(np.sort(one[:, 0]), np.arange(2, 64, 4))
    assert (one[:, 1] == data[5, 1]).all()
    np.testing.assert_array_equal(np.bincount(two[:, 1].astype(int)), [4, 4, 4, 4])
    assert len({tuple(row) for row in three.tolist()}) > 8
    np.testing.assert_array_equal(three, fill_unseen(layout, data[[7]], unseen[[7]]))


def test_the_encoder_takes_tables():
    rng = np.random.default_rng(0)
    cells = np.array([rng.choice(list("abcde"), 300), rng.random(300)], dtype=object).T
    cells[rng.random(300) < 0.2, 1] = None
    y = rng.standard_normal(300)
    encoder = BitEncoder(precision=6).fit(cells, y)
    assert encoder.n_features_in_ == 2
    np.testing.assert_array_equal(encoder.precision_, [3, 3, 6, 1])
    codes = encoder.transform(cells)
    assert encoder.get_feature_names_out().tolist() == ["x0", "x0_listed", "x1", "x1_missing"]
    assert len(np.unique(codes[:, 0])) == 5
    np.testing.assert_array_equal(codes[:, 3], [cell is None for cell in cells[:, 1]])
    new = np.array([["z", 0.5], ["a", None]], dtype=object)
    np.testing.assert_array_equal(encoder.encode(new).unrelated, [True, False])
    assert encoder.transform(new)[0, 0] == 8  # beyond the codes of three bits
    with pytest.raises(ValueError, match="an unknown category in column 0 at row 0"):
        encoder.set_params(outside="error").transform(new)
    by_count = BitEncoder(precision=6).fit(cells)
    counts = np.unique(cells[:, 0].astype(str), return_counts=True)[1]
    np.testing.assert_array_equal(
        by_count.layout_.tables[0], np.argsort(np.argsort(-counts, kind="stable"))
    )
    plain = BitEncoder(precision=4).fit([[1.0], [2.0]])
    assert plain.encode([[np.nan], [1.5]]).unrelated.tolist() == [True, False]


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("n_codes", [3, 40])
@pytest.mark.parametrize("factor", [2.0**-1000, 2.0**1015])
def test_categories_are_ordered_alike_in_any_units(factor, n_codes, n_targets):
    """Squares of y may exceed float64, or be 0 in it."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_codes, 200)
    y = codes[:, None] + rng.standard_normal((200, n_targets))
    data = rng.random((200, 2))
    given = (data, codes, n_codes)
    plain, other = (order_categories(*given, unit * y, np.ones(200)) for unit in (1.0, factor))
    for (role, table, crossed), (same, found, found_crossed) in zip(plain, other, strict=True):
        assert role == same
        unit = factor if role == "mean" and n_targets == 1 else 1.0
        np.testing.assert_array_equal(found, unit * table)
        if crossed is not None:
            np.testing.assert_array_equal(found_crossed, unit * crossed)


def test_dates_of_any_size_have_a_calendar():
    """An edited model file may hold days that no table can."""
    days = np.array([-1e300, -1e15, 0.5, 1e15, 1e300])
    found = layout._of_calendar(days, "yearday")
    assert np.isfinite(found).all()
    assert found[2] == 0.5
