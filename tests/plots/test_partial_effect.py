import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plot_problems import mixed_frame, problem, quick_forest, quick_mixture
from triegp.plots import PartialEffectDisplay
from triegp.plots.canvas import cell_edges, tick_values
from triegp.plots.features import Feature, choose_values, replace_values


@pytest.mark.parametrize("name", ["mixture", "forest"])
def test_effect_is_the_average_over_rows(both, name):
    X, _ = problem()
    display = PartialEffectDisplay.from_estimator(
        both[name], None, 1, n_grid=5, n_rows=1_000, n_draws=2
    )
    assert display.effect.shape == display.std.shape == (5,)
    assert np.isin(display.grid[0], X[:, 1]).all()
    for value, effect in zip(display.grid[0], display.effect, strict=True):
        changed = X.copy()
        changed[:, 1] = value
        np.testing.assert_allclose(effect, both[name].predict(changed, latent=True).mean())


@pytest.mark.parametrize("centred", [False, True])
def test_deviation_is_that_of_the_average(forest, centred):
    """The deviation by draws, against the covariance of all values: a' C a."""
    X, _ = problem()
    display = PartialEffectDisplay.from_estimator(
        forest, X[:6], 0, n_grid=3, n_draws=3_000, centred=centred
    )
    rows = np.tile(X[:6], (3, 1))
    rows[:, 0] = np.repeat(display.grid[0], 6)
    mean, cov = forest.predict(rows, return_cov=True, latent=True)
    average = np.kron(np.eye(3), np.full((1, 6), 1 / 6))
    if centred:
        average = average - average.mean(axis=0)
    np.testing.assert_allclose(display.effect, average @ mean, atol=1e-8)
    exact = np.sqrt(np.diag(average @ cov @ average.T))
    np.testing.assert_allclose(display.std, exact, rtol=0.06)
    np.testing.assert_allclose(display.draws.mean(axis=-1), display.effect, atol=0.1 * exact.max())
    assert not np.allclose(exact, np.sqrt(np.diag(cov)).reshape(3, 6).mean(axis=1), rtol=0.06)


@pytest.mark.parametrize("n_values", [1, 10])
def test_bands_of_transformed_targets_are_quantiles_of_draws(n_values):
    rng = np.random.default_rng(0)
    X = np.round(rng.random((40, 1)) * (n_values - 1))
    y = np.exp(3.0 * rng.standard_normal(40))
    model = quick_mixture(target_transform="log").fit(X, y)
    display = PartialEffectDisplay.from_estimator(model, None, 0, n_draws=200, coverages=(0.9,))
    assert display.transformed
    found = display.ax_.patches if n_values == 1 else display.ax_.collections
    heights = found[0].get_paths()[0].vertices[:, 1] if n_values > 1 else found[0].get_bbox().y0
    low, high = np.quantile(display.draws, [0.05, 0.95], axis=-1)
    assert low.min() > 0
    assert np.min(heights) == pytest.approx(low.min())
    if n_values > 1:
        assert np.max(heights) == pytest.approx(high.max())
    assert display.effect.shape == low.shape


def test_two_features_by_loops(mixture):
    X, _ = problem()
    display = PartialEffectDisplay.from_estimator(
        mixture, X, (1, 0), n_grid=3, n_rows=500, n_draws=4
    )
    assert display.effect.shape == display.std.shape == (3, 3)
    assert display.draws.shape == (3, 3, 4)
    for i, first in enumerate(display.grid[0]):
        for j, second in enumerate(display.grid[1]):
            changed = np.column_stack([np.full(80, second), np.full(80, first)])
            np.testing.assert_allclose(
                display.effect[i, j], mixture.predict(changed, latent=True).mean()
            )
    np.testing.assert_allclose(display.std, display.draws.std(axis=-1, ddof=1))
    shown = display.ax_[0].collections[0].get_array()
    np.testing.assert_allclose(np.ravel(shown), display.effect.T.ravel())
    assert display.ax_[0].get_xlabel() == "x1"


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize("feature", ["town", "day", "x", "n", "flag"])
def test_columns_of_all_kinds_and_libraries(table, library, feature):
    model, frame, _ = table
    display = PartialEffectDisplay.from_estimator(
        model, frame, feature, n_grid=4, n_rows=10, n_draws=2
    )
    other = frame.reset_index(drop=True)
    if library is pa.Table.from_pandas:
        given = pa.Table.from_pandas(other, preserve_index=False)
    else:
        given = library(other)
    same = PartialEffectDisplay.from_estimator(
        model, given, feature, n_grid=4, n_rows=10, n_draws=2
    )
    np.testing.assert_array_equal(display.effect, same.effect)
    assert display.labels == same.labels


def test_effect_of_categories_and_dates(table):
    model, frame, _ = table
    display = PartialEffectDisplay.from_estimator(model, frame, "town", n_rows=1_000, n_draws=2)
    assert display.labels[0] == ["Bonn", "Oslo", "Rome", "missing"]
    for value, effect in zip(["Bonn", "Oslo", "Rome", None], display.effect, strict=True):
        changed = frame.assign(town=pd.Series([value] * len(frame), frame.index, dtype=object))
        np.testing.assert_allclose(effect, model.predict(changed, latent=True).mean())
    display = PartialEffectDisplay.from_estimator(
        model, frame, "day", n_grid=3, n_rows=1_000, n_draws=2
    )
    moment = pd.Timestamp(display.labels[0][1])
    changed = frame.assign(day=moment)
    np.testing.assert_allclose(display.effect[1], model.predict(changed, latent=True).mean())


def test_tables_are_read_as_by_the_model():
    """Dates of a part of the rows need not show their format, and columns may be others."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 80), "D")
    frame = pd.DataFrame({"when": days.strftime("%d/%m/%Y"), "x": rng.random(80)})
    with pytest.warns(UserWarning, match="read as dates, dd/mm/yyyy"):
        model = quick_mixture().fit(frame, days.day_of_year + frame["x"])
    early = frame[days.day <= 12]
    wide = early.assign(y=0.0)[["y", "x", "when"]]
    for feature in ("when", "x"):
        found, again = (
            PartialEffectDisplay.from_estimator(model, X, feature, random_state=0)
            for X in (early, wide)
        )
        assert found.kinds == ("time" if feature == "when" else "number",)
        np.testing.assert_array_equal(found.effect, again.effect)


def test_binary_features_are_marks():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 60), rng.random(60)]).astype(float)
    model = quick_mixture().fit(X, X.sum(axis=1))
    ax = PartialEffectDisplay.from_estimator(model, X, 0, n_draws=2).ax_
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1"]
    assert ax.lines[0].get_linestyle() == "None"
    ax = PartialEffectDisplay.from_estimator(model, X, (0, 1), n_draws=2).ax_[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1"]
    low, high = ax.get_ylim()
    assert X[:, 1].min() <= low < high <= X[:, 1].max()


@pytest.mark.parametrize("span", [0.15, 3.0, 140.0, 1_600.0])
@pytest.mark.parametrize("most", [5, 8])
def test_dates_of_any_span_have_ticks_without_a_warning(span, most):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    ax = Figure().subplots()
    ax.plot([17_000.3, 17_000.3 + span], [0, 1])
    tick_values(ax.xaxis, "time", most)
    FigureCanvasAgg(ax.figure).draw()
    assert 2 <= sum(bool(label.get_text()) for label in ax.get_xticklabels()) <= most + 1


def test_arrays_of_objects():
    frame, y = mixed_frame(60)
    cells = frame[["town", "n"]].astype(object).where(frame[["town", "n"]].notna(), None).to_numpy()
    model = quick_mixture().fit(cells, y)
    display = PartialEffectDisplay.from_estimator(model, cells, 0, n_rows=60, n_draws=2)
    changed = cells.copy()
    changed[:, 0] = "Rome"
    at = display.labels[0].index("Rome")
    np.testing.assert_allclose(display.effect[at], model.predict(changed, latent=True).mean())


def test_pipelines_change_what_goes_in():
    X, y = problem(40)
    pipeline = make_pipeline(StandardScaler(), quick_mixture()).fit(X, y)
    display = PartialEffectDisplay.from_estimator(pipeline, X, 0, n_grid=3, n_rows=40, n_draws=2)
    changed = X.copy()
    changed[:, 0] = display.grid[0][1]
    own = pipeline[-1].predict(pipeline[0].transform(changed), latent=True)
    np.testing.assert_allclose(display.effect[1], own.mean())
    with pytest.raises(ValueError, match="X must be given for a pipeline"):
        PartialEffectDisplay.from_estimator(pipeline, None, 0)


def test_targets_are_chosen(two_targets):
    model, X, _ = two_targets
    first, second = (
        PartialEffectDisplay.from_estimator(model, X, 0, n_grid=3, n_draws=2, target=k)
        for k in (0, 1)
    )
    assert np.ptp(second.effect) > 2 * np.ptp(first.effect)
    with pytest.raises(ValueError, match="target must be given, 0 to 1"):
        PartialEffectDisplay.from_estimator(model, X, 0)


def test_named_models_read_their_kept_rows():
    X, y = problem(40)
    model = quick_mixture().fit(pd.DataFrame(X, columns=["a", "b"]), y)
    display = PartialEffectDisplay.from_estimator(model, None, "b", n_grid=3, n_draws=2)
    assert display.names == ("b",)
    assert display.ax_.get_xlabel() == "b"


def test_values_of_a_grid():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1_000)
    values[::10] = np.nan
    number = Feature(0, "x", "number", values, ())
    grid = values[choose_values(number, 5)]
    known = values[~np.isnan(values)]
    below = (known <= grid[:, None]).mean(axis=1)
    np.testing.assert_allclose(below, [0.01, 0.255, 0.5, 0.745, 0.99], atol=0.002)
    few = Feature(0, "x", "number", np.array([3.0, 1.0, np.nan, 1.0, 2.0]), ())
    np.testing.assert_array_equal(few.values[choose_values(few, 5)], [1.0, 2.0, 3.0])
    codes = np.array([0.0] * 5 + [1.0] + [2.0] * 3 + [np.nan] * 2)
    town = Feature(0, "town", "category", codes, ("a", "b", "c"))
    assert [town.label(codes[i]) for i in choose_values(town, 3)] == ["a", "c", "missing"]
    empty = Feature(0, "x", "number", np.full(3, np.nan), ())
    with pytest.raises(ValueError, match="features must have values, got only missing ones in 'x'"):
        choose_values(empty, 3)


def test_edges_lie_around_values():
    np.testing.assert_allclose(cell_edges(np.array([0.0, 1.0, 4.0])), [0.0, 0.5, 2.5, 4.0])
    np.testing.assert_allclose(cell_edges(np.array([2.0])), [1.5, 2.5])


def test_replaced_values_keep_types_and_the_frame_is_unchanged():
    frame, _ = mixed_frame(20)
    before = frame.copy()
    rows, source = np.array([3, 3, 5]), np.array([0, 1, 2])
    found = replace_values(frame, rows, {1: source})
    assert (found.dtypes == frame.dtypes).all()
    assert found["day"].tolist() == frame["day"].iloc[source].tolist()
    pd.testing.assert_series_equal(
        found["n"].reset_index(drop=True), frame["n"].iloc[rows].reset_index(drop=True)
    )
    pd.testing.assert_frame_equal(frame, before)


def test_one_row_and_constant_features():
    one = quick_mixture().fit([[1.0, 2.0]], [3.0])
    display = PartialEffectDisplay.from_estimator(one, None, 0, n_draws=2)
    np.testing.assert_allclose(display.effect, [3.0])
    X, y = problem(30)
    X[:, 1] = 4.0
    model = quick_forest().fit(X, y)
    for features in (1, (0, 1)):
        display = PartialEffectDisplay.from_estimator(model, None, features, n_grid=3, n_draws=2)
        display.figure_.canvas.draw()


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        ((0, 1, 0), {}, "features must be one or two, got 3"),
        ((0, 0), {}, "features must be two different ones"),
        (2, {}, "feature must be between 0 and 1, got 2"),
        ("a", {}, "feature must be a column of X, got 'a': X has no names"),
        (0, {"n_draws": 1}, "n_draws must be an integer, 2 or more, got 1"),
        ((0, 1), {"ax": Figure().subplots()}, "ax must be two axes, got 1"),
    ],
)
def test_errors_name_the_argument(mixture, features, options, message):
    options = {"n_grid": 2, "n_rows": 2, "n_draws": 2, **options}
    with pytest.raises(ValueError, match=message):
        PartialEffectDisplay.from_estimator(mixture, problem()[0], features, **options)


def test_rows_of_models_with_categories_must_be_passed(table):
    with pytest.raises(ValueError, match="X must be given: this model has columns"):
        PartialEffectDisplay.from_estimator(table[0], None, "x")
