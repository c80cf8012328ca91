"""Displays that compare distributions with targets: numbers by a second route."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import comb
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plot_problems import problem, quick_mixture
from triegp import PredictiveDistribution
from triegp.metrics import calibration_error, coverage
from triegp.metrics.forecasts import binomial_band
from triegp.plots import (
    CalibrationDisplay,
    CoverageByFeatureDisplay,
    CoverageByWidthDisplay,
    PitDisplay,
    ResidualDisplay,
)

DISPLAYS = [CalibrationDisplay, PitDisplay, CoverageByWidthDisplay, ResidualDisplay]


def skewed(n=400, seed=0):
    """Targets drawn from mixtures of two Gaussians that differ from row to row."""
    rng = np.random.default_rng(seed)
    weights = np.array([0.7, 0.3])
    means = np.stack([rng.standard_normal(n), 2 + rng.standard_normal(n)])
    variances = 0.1 + rng.random((2, n))
    distribution = PredictiveDistribution(weights, means, variances)
    return distribution.sample(1, seed)[:, 0], distribution


def test_calibration_counts_targets_inside_intervals():
    y, distribution = skewed()
    display = CalibrationDisplay.from_predictions(y, distribution, levels=[0.9, 0.2, 0.5])
    np.testing.assert_array_equal(display.nominal, [0.2, 0.5, 0.9])
    for level, observed in zip(display.nominal, display.observed, strict=True):
        low, high = distribution.interval(level).T
        assert observed == np.mean((low <= y) & (y <= high))
    line = display.ax_.lines[-1]
    np.testing.assert_array_equal(line.get_ydata(), display.observed)


def test_the_curve_is_what_scores_say():
    y, distribution = skewed()
    display = CalibrationDisplay.from_predictions(y, distribution, levels=[0.3, 0.6, 0.9])
    error = calibration_error(y, distribution, levels=[0.3, 0.6, 0.9])
    np.testing.assert_allclose(np.abs(display.observed - display.nominal).mean(), error)
    assert display.observed[2] == coverage(y, distribution.interval(0.9))


def test_binomial_band_by_summing_probabilities():
    n, p = 37, 0.3
    probability = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    below = np.cumsum(probability)
    low, high = binomial_band(n, p)
    assert low == np.argmax(below >= 0.025) / n
    assert high == np.argmax(below >= 0.975) / n


def test_calibrated_rows_lie_in_the_band_and_others_do_not():
    y, distribution = skewed(2_000)
    display = CalibrationDisplay.from_predictions(y, distribution)
    assert np.mean((display.observed >= display.low) & (display.observed <= display.high)) > 0.9
    wide = PredictiveDistribution(
        distribution.weights, distribution.means, 9 * distribution.variances
    )
    display = CalibrationDisplay.from_predictions(y, wide)
    assert np.mean(display.observed > display.high) > 0.9


def test_pit_is_the_share_of_samples_below():
    y, distribution = skewed(50)
    display = PitDisplay.from_predictions(y, distribution, n_bins=5)
    drawn = distribution.sample(20_000, 1)
    np.testing.assert_allclose(display.pit, (drawn <= y[:, None]).mean(axis=1), atol=0.02)
    counts = [np.sum((display.pit >= k / 5) & (display.pit < (k + 1) / 5)) for k in range(5)]
    np.testing.assert_allclose(display.density, np.array(counts) / 10)
    assert display.low < 1 < display.high


def test_coverage_by_width_counts_by_decile():
    y, distribution = skewed(400)
    display = CoverageByWidthDisplay.from_predictions(y, distribution, coverage=0.8, n_bins=4)
    low, high = distribution.interval(0.8).T
    order = np.argsort(high - low)
    inside = ((low <= y) & (y <= high))[order].reshape(4, 100)
    np.testing.assert_array_equal(display.count, 100)
    np.testing.assert_allclose(display.observed, inside.mean(axis=1))
    np.testing.assert_allclose(
        display.width, np.median(np.sort(high - low).reshape(4, 100), axis=1)
    )


@pytest.mark.parametrize("scale", [1.0, 100.0, 30_000.0])
def test_widths_are_written_out_and_do_not_overlap(scale):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    std = scale * np.linspace(0.5, 2.0, 1_000)
    distribution = PredictiveDistribution(np.ones(1), np.zeros((1, 1_000)), std[None] ** 2)
    ax = Figure(figsize=(3.3, 3.1), layout="constrained").subplots()
    CoverageByWidthDisplay.from_predictions(np.zeros(1_000), distribution, ax=ax)
    FigureCanvasAgg(ax.figure).draw()
    labels = ax.get_xticklabels()
    assert not any("e" in label.get_text() for label in labels)
    if labels[0].get_rotation() == 0:
        boxes = [label.get_window_extent() for label in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_equal_widths_share_a_bin():
    normal = PredictiveDistribution(np.ones(1), np.zeros((1, 30)), np.ones((1, 30)))
    display = CoverageByWidthDisplay.from_predictions(np.zeros(30), normal)
    assert display.count.tolist() == [30]
    assert display.observed.tolist() == [1.0]


def test_coverage_by_feature_of_numbers_and_gaps():
    y, distribution = skewed(200)
    x = np.arange(200.0)
    x[:20] = np.nan
    display = CoverageByFeatureDisplay.from_predictions(y, distribution, x, n_bins=3, name="size")
    low, high = distribution.interval(0.9).T
    inside = (low <= y) & (y <= high)
    expected = [inside[20:80].mean(), inside[80:140].mean(), inside[140:].mean()]
    np.testing.assert_allclose(display.observed, [*expected, inside[:20].mean()])
    assert display.count.tolist() == [60, 60, 60, 20]
    assert display.labels[-1] == "missing"
    assert display.edges.tolist() == [20.0, 79.0, 139.0, 199.0]
    assert display.ax_.get_xlabel() == "size"


def test_coverage_by_feature_of_categories_by_frequency():
    y, distribution = skewed(100)
    town = np.array(["b"] * 50 + ["c"] * 30 + ["a"] * 12 + [None] * 4 + ["d"] * 4, dtype=object)
    display = CoverageByFeatureDisplay.from_predictions(y, distribution, town, n_bins=3)
    low, high = distribution.interval(0.9).T
    inside = (low <= y) & (y <= high)
    assert display.labels == ["b", "c", "others", "missing"]
    assert display.count.tolist() == [50, 30, 16, 4]
    others = np.r_[inside[80:92], inside[96:]]
    expected = [inside[:50].mean(), inside[50:80].mean(), others.mean(), inside[92:96].mean()]
    np.testing.assert_allclose(display.observed, expected)


def test_few_distinct_numbers_have_a_bin_each():
    y, distribution = skewed(60)
    display = CoverageByFeatureDisplay.from_predictions(y, distribution, np.arange(60) % 3)
    assert display.labels == ["0", "1", "2"]
    assert display.count.tolist() == [20, 20, 20]


@pytest.mark.parametrize("over", ["std", "mean"])
def test_residuals_and_their_quantiles(over):
    y, distribution = skewed(1_200)
    display = ResidualDisplay.from_predictions(y, distribution, over=over, n_bins=3)
    mean, std = distribution.mean(), distribution.std()
    np.testing.assert_allclose(display.residual, (y - mean) / std)
    order = np.argsort(display.x)
    some = order[400:800]
    np.testing.assert_allclose(
        display.observed[1], np.quantile(display.residual[some], display.levels)
    )
    drawn = (distribution.sample(2_000, 2) - mean[:, None]) / std[:, None]
    np.testing.assert_allclose(
        display.expected[1], np.quantile(drawn[some], display.levels), atol=0.02
    )


def test_a_million_residuals_are_hexagons():
    rng = np.random.default_rng(0)
    n = 1_000_000
    normal = PredictiveDistribution(np.ones(1), np.zeros((1, n)), 0.1 + rng.random((1, n)))
    display = ResidualDisplay.from_predictions(rng.standard_normal(n), normal)
    (hexagons,) = display.ax_.collections
    assert hexagons.get_array().sum() == n
    assert max(line.get_xdata().size for line in display.ax_.lines) <= 10


@pytest.fixture(scope="module")
def weighted():
    """A model of 40 rows, two of weight 0."""
    X, y = problem(40)
    return quick_mixture().fit(X, y, sample_weight=~np.isin(np.arange(40), [3, 17])), y


@pytest.mark.parametrize("display", DISPLAYS)
def test_rows_of_weight_0_are_left_out(weighted, display):
    model, y = weighted
    known = ~np.isnan(model.loo_targets())
    assert known.sum() == 38
    there = display.from_loo(model)
    again = display.from_predictions(y[known], model.loo_distribution().select(known))
    for name in ("n_rows", "pit", "observed", "residual"):
        if hasattr(there, name):
            np.testing.assert_allclose(getattr(there, name), getattr(again, name), atol=1e-12)


def test_coverage_by_feature_leaves_rows_of_weight_0_out(weighted):
    display = CoverageByFeatureDisplay.from_loo(weighted[0], 1, n_bins=2)
    assert (display.count.sum(), display.name) == (38, "x1")


@pytest.mark.parametrize("display", DISPLAYS)
@pytest.mark.parametrize("name", ["mixture", "forest"])
def test_estimators_are_predicted(both, name, display):
    X, y = problem(30, seed=5)
    model = both[name]
    one = display.from_estimator(model, X, y)
    two = display.from_predictions(y, model.predict_distribution(X))
    kept = "pit" if display is PitDisplay else "observed"
    np.testing.assert_array_equal(getattr(one, kept), getattr(two, kept))
    assert one.figure_ is one.ax_.figure


def test_plot_again_on_given_axes(mixture):
    from matplotlib.figure import Figure

    display = CalibrationDisplay.from_loo(mixture)
    ax = Figure().subplots()
    again = display.plot(
        ax, name="mine", line_kw={"lw": 5, "color": "red"}, band_kw={"alpha": 0.5, "lw": 1.0}
    )
    assert again is display
    assert display.ax_ is ax
    assert ax.lines[-1].get_linewidth() == 5
    assert ax.lines[-1].get_label() == "mine"
    assert ax.collections[0].get_alpha() == 0.5


def test_targets_are_chosen(two_targets):
    model, X, Y = two_targets
    found = CalibrationDisplay.from_estimator(model, X, Y, target=1)
    direct = CalibrationDisplay.from_predictions(Y[:, 1], model.predict_distribution(X)[1])
    np.testing.assert_array_equal(found.observed, direct.observed)
    with pytest.raises(ValueError, match="target must be given, 0 to 1: there are 2"):
        CalibrationDisplay.from_loo(model)
    with pytest.raises(ValueError, match="target must be between 0 and 1, got 2"):
        CalibrationDisplay.from_loo(model, target=2)
    with pytest.raises(ValueError, match="y must have one column per distribution, 2"):
        CalibrationDisplay.from_estimator(model, X, Y[:, 0], target=0)


def test_pipelines_and_searches_are_opened():
    X, y = problem(40)
    pipeline = make_pipeline(StandardScaler(), quick_mixture()).fit(X, y)
    own = pipeline[-1].predict_distribution(pipeline[:-1].transform(X))
    expected = PitDisplay.from_predictions(y, own).pit
    np.testing.assert_array_equal(PitDisplay.from_estimator(pipeline, X, y).pit, expected)
    search = GridSearchCV(pipeline, {"binarytreegpregressor__max_iter": [5]}, cv=2).fit(X, y)
    np.testing.assert_array_equal(PitDisplay.from_estimator(search, X, y).pit, expected)
    display = CoverageByFeatureDisplay.from_estimator(pipeline, X, y, 1, n_bins=2)
    np.testing.assert_allclose(display.edges[[0, -1]], [X[:, 1].min(), X[:, 1].max()])


@pytest.mark.parametrize("display", DISPLAYS)
def test_constant_targets_and_one_row(display):
    X, _ = problem(20)
    constant = quick_mixture().fit(X, np.full(20, 3.0))
    display.from_loo(constant)
    one = quick_mixture().fit(X[:1], [1.0])
    shown = display.from_estimator(one, X[:1], [1.5])
    shown.figure_.canvas.draw()


def test_transformed_targets():
    X, y = problem(60)
    model = quick_mixture(target_transform="log").fit(X, np.exp(y))
    display = CalibrationDisplay.from_loo(model)
    low, high = model.loo_distribution().interval(0.5).T
    inside = np.mean((low <= np.exp(y)) & (np.exp(y) <= high))
    assert display.observed[np.argmin(np.abs(display.nominal - 0.5))] == inside


@pytest.mark.parametrize(
    ("display", "options", "message"),
    [
        (CalibrationDisplay, {"y": np.zeros(19)}, r"y must have shape \(20,\), got \(19,\)"),
        (CalibrationDisplay, {"levels": [0.5, 1.0]}, "levels must lie strictly between 0 and 1"),
        (CalibrationDisplay, {"target": 1}, "target must be between 0 and 0, got 1"),
        (PitDisplay, {"n_bins": 0}, "n_bins must be an integer, 1 or more, got 0"),
        (PitDisplay, {"y": np.full(20, np.nan)}, "at least one row that is not NaN"),
        (CoverageByWidthDisplay, {"coverage": 1}, "coverage must lie strictly between 0 and 1"),
        (ResidualDisplay, {"over": "y"}, "over must be one of 'std', 'mean', got 'y'"),
        (CoverageByFeatureDisplay, {"values": [1, 2, 3]}, "the feature must have 20 rows as y has"),
        (CoverageByFeatureDisplay, {"values": np.zeros((20, 2))}, "values must be one-dimensional"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(display, options, message):
    y, distribution = skewed(20)
    with pytest.raises(ValueError, match=message):
        display.from_predictions(**{"y": y, "distribution": distribution, **options})


def test_y_of_new_rows_must_be_finite(mixture):
    X, y = problem(5)
    y[2] = np.nan
    with pytest.raises(ValueError, match="y must be finite, got nan at row 2"):
        PitDisplay.from_estimator(mixture, X, y)
    with pytest.raises(ValueError, match="y must be finite, got nan at row 2"):
        CoverageByFeatureDisplay.from_estimator(mixture, X, y, 0)


def test_frames_by_feature(table):
    model, frame, y = table
    display = CoverageByFeatureDisplay.from_loo(model, "town", X=frame)
    counts = frame["town"].fillna("missing").value_counts()
    assert display.labels == ["Bonn", "Rome", "Oslo", "missing"]
    assert display.count.tolist() == [counts[town] for town in display.labels]
    day = CoverageByFeatureDisplay.from_estimator(model, frame, y, "day", n_bins=2)
    assert day.kind == "time"
    assert day.ax_.get_xticklabels()[0].get_text() == str(frame["day"].min().date())
    with pytest.raises(ValueError, match="X must be given: this model has columns that are not"):
        CoverageByFeatureDisplay.from_loo(model, "town")
    with pytest.raises(ValueError, match="feature must be a column of X, got 'city'"):
        CoverageByFeatureDisplay.from_loo(model, "city", X=frame)
