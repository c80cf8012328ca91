"""Displays of what a model has learned: importances, weights, the tree, the training curve."""

import numpy as np
import pandas as pd
import pytest

from plot_problems import four_rows, problem, quick_forest, quick_mixture
from triegp.plots import (
    ImportanceDisplay,
    TrainingCurveDisplay,
    TreeDisplay,
    WeightsDisplay,
)


@pytest.mark.parametrize("name", ["mixture", "forest"])
@pytest.mark.parametrize("share", ["explained", "prior"])
@pytest.mark.parametrize("kind", ["bars", "heatmap"])
def test_importances_are_sorted_and_whole(both, name, share, kind):
    display = ImportanceDisplay.from_estimator(both[name], share=share, kind=kind)
    found = getattr(both[name].importances_, share)
    order = np.argsort(-found)
    assert display.names == tuple(f"x{j}" for j in order)
    np.testing.assert_array_equal(display.total, found[order])
    np.testing.assert_allclose(display.by_bit.sum(axis=1) + display.smooth, display.total)
    assert display.n_hidden == 0


def test_bars_end_at_the_totals(forest):
    display = ImportanceDisplay.from_estimator(forest)
    ends = np.zeros(2)
    for bars in display.ax_.containers:
        for k, bar in enumerate(bars):
            ends[k] = max(ends[k], bar.get_x() + bar.get_width())
    positive = np.clip(display.by_bit, 0, None).sum(axis=1) + display.smooth.clip(0)
    np.testing.assert_allclose(ends, positive, atol=2e-3)


def test_features_that_do_not_fit_are_counted(mixture, two_targets):
    display = ImportanceDisplay.from_estimator(mixture, max_features=1)
    assert len(display.names) == 1
    assert display.n_hidden == 1
    assert "1 features not shown" in display.ax_.get_xlabel()
    found = ImportanceDisplay.from_estimator(two_targets[0], target=1)
    expected = np.sort(two_targets[0].importances_[1].explained)[::-1]
    np.testing.assert_array_equal(found.total, expected)
    with pytest.raises(ValueError, match="target must be given"):
        ImportanceDisplay.from_estimator(two_targets[0])
    with pytest.raises(ValueError, match="kind must be one of 'bars', 'heatmap', got 'pie'"):
        ImportanceDisplay.from_estimator(mixture, kind="pie")


def test_names_of_frames(table):
    model, frame, _ = table
    display = ImportanceDisplay.from_estimator(model)
    assert sorted(display.names) == sorted(frame.columns)
    weights = WeightsDisplay.from_estimator(model)
    assert len(weights.names) == weights.weight.shape[1] == len(model.layout_.roles)
    assert "town, missing" in weights.names


@pytest.mark.parametrize("name", ["mixture", "forest"])
def test_weights_stand_where_the_order_says(both, name):
    model = both[name]
    display = WeightsDisplay.from_estimator(model)
    if name == "mixture":
        trees = [(member.encoder, member.order) for member in model.ensembles_[0].members]
    else:
        forest = model.forests_[0].model
        trees = list(zip(forest.encoders, forest.orders, strict=True))
    np.testing.assert_allclose(display.weight.sum(axis=(1, 2)), 1.0)
    np.testing.assert_allclose(display.tree_weight.sum(), 1.0)
    for t, (encoder, order) in enumerate(trees):
        starts = np.cumsum([0, *encoder.precision_])
        total = order.weights[: order.n_levels].sum()
        for place, bit in enumerate(order.key_bits, start=1):
            feature = int(np.searchsorted(starts, bit, side="right")) - 1
            depth = int(bit - starts[feature])
            assert display.place[t, feature, depth] == place
            np.testing.assert_allclose(
                display.weight[t, feature, depth], order.weights[place - 1] / total
            )


def test_average_weights_are_prior_importances(forest):
    display = WeightsDisplay.from_estimator(forest)
    by_tree = (display.tree_weight[:, None, None] * display.weight).sum(axis=0)
    trees = forest.importances_.prior_by_bit
    np.testing.assert_allclose(by_tree, trees / trees.sum(), atol=1e-12)
    drawn = display.ax_.collections[0].get_array()
    np.testing.assert_allclose(np.ma.getdata(drawn).reshape(by_tree.shape), by_tree)


def test_one_tree_has_a_bit_per_place(mixture):
    display = WeightsDisplay.from_estimator(mixture, tree=1)
    drawn = display.ax_.collections[0].get_array()
    assert (drawn.reshape(2, -1).count(axis=0) == 1).all()
    assert display.ax_.texts[0].get_text().isdigit()
    with pytest.raises(ValueError, match="tree must be between 0 and 1, got 2"):
        WeightsDisplay.from_estimator(mixture, tree=2)


def test_tree_of_the_notation_by_hand():
    display = TreeDisplay.from_posterior(four_rows())
    assert display.row[:4].tolist() == [1, 3, 0, 2]
    assert display.bits[:4] == ["01", "10", "0", "1"]
    assert display.bits[4:] == ["0", "", "11"]
    assert display.parent.tolist() == [4, 4, 6, 6, 5, -1, 5]
    # Leaves send (y, 0.1). Rows 001 and 010 part at depth 1, with R(1) = 0.5; 110 and 111 at
    # depth 2, with R(2) = 0.2.
    left, right = (-0.75, (0.1 + 0.5) / 2), (1.1, (0.1 + 0.2) / 2)
    up = left[1] + 0.5, right[1] + 0.8
    root = (left[0] * up[1] + right[0] * up[0]) / sum(up), up[0] * up[1] / sum(up)
    np.testing.assert_allclose(display.mean, [-1.0, -0.5, 1.0, 1.2, left[0], root[0], right[0]])
    noise = [0.1] * 4
    np.testing.assert_allclose(display.std**2, [*noise, left[1], root[1], right[1]])
    np.testing.assert_allclose(display.x, [0, 1, 2, 3, 0.5, 1.5, 2.5])


def test_tree_of_a_model_is_in_units_of_y():
    X, y = problem(9)
    y = 100 + 10 * y
    model = quick_mixture().fit(X, y)
    display = TreeDisplay.from_estimator(model, member=1)
    np.testing.assert_allclose(display.mean[:9], y[display.row[:9]])
    assert sorted(display.row[:9].tolist()) == list(range(9))
    posterior = model.ensembles_[0].members[1].posteriors[0]
    noise = np.sqrt(posterior.noise + posterior.order.nugget_variance) * model.target_scale_[0]
    np.testing.assert_allclose(display.std[:9], noise)
    root = int(np.argmin(display.parent))
    assert y.min() < display.mean[root] < y.max()
    texts = [text.get_text() for text in display.ax_.texts]
    assert any(text.startswith("row 0\n") for text in texts)


def test_leaves_of_folded_rows_have_no_numbers():
    X = np.repeat(np.random.default_rng(0).random((6, 1)), 2, axis=0)
    model = quick_mixture().fit(X, np.arange(12.0))
    display = TreeDisplay.from_estimator(model)
    assert display.parent.size == 2 * 6 - 1
    assert (display.row == -1).all()


def test_trees_of_one_row_and_of_equal_keys():
    display = TreeDisplay.from_estimator(quick_mixture().fit([[1.0]], [2.0]))
    assert display.parent.tolist() == [-1]
    np.testing.assert_allclose(display.mean, [2.0])
    X = np.linspace(0, 1, 12)[:, None]
    model = quick_mixture(precision=2, shift=False).fit(X, np.arange(12.0))
    display = TreeDisplay.from_estimator(model)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert "same key" in labels


def test_trees_that_cannot_be_drawn(mixture, forest):
    with pytest.raises(ValueError, match="a tree of at most 40 rows can be drawn, got 80"):
        TreeDisplay.from_estimator(mixture)
    with pytest.raises(TypeError, match="model must be a BinaryTreeGPRegressor, got TrieGP"):
        TreeDisplay.from_estimator(forest)
    small = quick_mixture().fit(*problem(8))
    most = len(small.ensembles_[0].members) - 1
    with pytest.raises(ValueError, match=f"member must be between 0 and {most}, got {most + 1}"):
        TreeDisplay.from_estimator(small, member=most + 1)
    with pytest.raises(ValueError, match="bit_names must have 3 entries, got 1"):
        TreeDisplay.from_posterior(four_rows(), bit_names=["a"])


def test_tree_of_one_of_several_targets():
    X, y = problem(8)
    for sharing in ("own", "shared"):
        model = quick_mixture(multi_target=sharing).fit(X, np.column_stack([y, 5 - y]))
        display = TreeDisplay.from_estimator(model, target=1)
        np.testing.assert_allclose(display.mean[:8], 5 - y[display.row[:8]])
        weights = WeightsDisplay.from_estimator(model, target=1).weight
        assert weights.shape[0] == len(model.ensembles_[-1].members)
        forest = quick_forest(multi_target=sharing).fit(X, np.column_stack([y, 5 - y]))
        display = WeightsDisplay.from_estimator(forest, target=1)
        orders = [order.prior_variance for order in forest.forests_[-1].model.orders]
        np.testing.assert_allclose(display.tree_weight, orders / np.sum(orders))
        with pytest.raises(ValueError, match="target must be between 0 and 1, got 2"):
            WeightsDisplay.from_estimator(forest, target=2)
        names = TrainingCurveDisplay.from_estimator(forest).names
        assert len(names) == len(forest.forests_)


def test_training_curves_are_those_of_the_model(both):
    for model in both.values():
        display = TrainingCurveDisplay.from_estimator(model)
        curve = model.training_curve_
        assert display.names == curve.names
        for line, step, nll in zip(display.ax_.lines, curve.step, curve.nll, strict=False):
            np.testing.assert_array_equal(line.get_xdata(), step)
            np.testing.assert_array_equal(line.get_ydata(), nll)


def test_held_out_rows_are_drawn():
    X, y = problem(1_100)
    model = quick_forest(n_trees=2, max_iter=4).fit(X, y)
    display = TrainingCurveDisplay.from_estimator(model)
    ((step, nll),) = display.held_out
    line = display.ax_.lines[-1]
    np.testing.assert_array_equal(line.get_xdata(), step)
    np.testing.assert_array_equal(line.get_ydata(), nll)
    assert line.get_label() == "held-out rows"


def test_one_bad_step_does_not_hide_the_others():
    step = np.arange(100)
    nll = np.linspace(1, 0, 100)
    nll[50] = 1e6
    display = TrainingCurveDisplay(("one",), (step,), (nll,), None).plot()
    assert display.ax_.get_ylim()[1] < 3
    display = TrainingCurveDisplay(("one",), (step[:0],), (nll[:0],), None).plot()
    display.figure_.canvas.draw()


def test_models_without_a_curve_say_so(mixture):
    class Older:
        training_curve_ = None

    with pytest.raises(ValueError, match="model must hold a training curve"):
        TrainingCurveDisplay.from_estimator(Older())


def test_columns_and_layout_of_a_model(table, mixture):
    model, frame, _ = table
    assert model.columns_.names == tuple(frame.columns)
    assert model.columns_.kinds == ("category", "time", "number", "number", "number")
    assert not model.layout_.plain
    assert mixture.columns_.plain
    assert mixture.layout_.plain
    assert pd.Index(model.layout_.source).is_monotonic_increasing
