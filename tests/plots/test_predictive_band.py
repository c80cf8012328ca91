import datetime

import numpy as np
import pandas as pd
import pytest

from plot_problems import problem, quick_forest, quick_mixture
from triegp.plots import PredictiveBandDisplay


def test_band_is_the_models_intervals(line):
    X, y = problem(60, 1)
    display = PredictiveBandDisplay.from_estimator(line, coverages=[0.9, 0.3], n_grid=50)
    grid = np.linspace(X.min(), X.max(), 50)
    np.testing.assert_allclose(display.x, grid)
    np.testing.assert_allclose(display.mean, line.predict(grid[:, None]))
    np.testing.assert_array_equal(display.coverages, [0.3, 0.9])
    for level, band in zip([0.3, 0.9], display.bands, strict=True):
        np.testing.assert_allclose(band, line.predict_interval(grid[:, None], level))
    np.testing.assert_allclose(display.points, np.column_stack([X[:, 0], y]))
    assert display.samples.shape == (50, 0)
    assert display.ax_.get_xlabel() == "x0"


def test_samples_are_joint_samples_of_the_function(line):
    display = PredictiveBandDisplay.from_estimator(line, n_grid=20, n_samples=3, random_state=4)
    expected = line.sample_y(display.x[:, None], 3, 4, latent=True)
    np.testing.assert_array_equal(display.samples, expected)
    assert "samples" in [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_latent_bands_and_margins_outside(line):
    display = PredictiveBandDisplay.from_estimator(line, latent=True, n_grid=30)
    grid = display.x[:, None]
    np.testing.assert_allclose(display.bands[1], line.predict_interval(grid, 0.9, latent=True))
    fresh = quick_mixture().fit(*problem(60, 1))
    with pytest.warns(UserWarning, match="outside"):
        wide = PredictiveBandDisplay.from_estimator(fresh, margin=0.5, n_grid=30)
    np.testing.assert_allclose(np.ptp(wide.x), 2 * np.ptp(display.x))


def test_order_of_rows_does_not_matter(line):
    x = np.random.default_rng(0).random(40)
    one = PredictiveBandDisplay.from_predictions(x, line.predict_distribution(x[:, None]))
    x.sort()
    two = PredictiveBandDisplay.from_predictions(x, line.predict_distribution(x[:, None]))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_allclose(one.bands, two.bands, rtol=1e-12)


def test_targets_of_several(line):
    X, y = problem(30, 1)
    model = quick_mixture().fit(X, np.column_stack([y, 2 * y]))
    display = PredictiveBandDisplay.from_estimator(model, target=1, n_grid=10, n_samples=2)
    np.testing.assert_allclose(display.mean, model.predict(display.x[:, None])[:, 1])
    np.testing.assert_allclose(display.points[:, 1], 2 * y)
    assert display.samples.shape == (10, 2)


@pytest.mark.parametrize("make", [quick_mixture, quick_forest])
def test_named_frames_and_models_without_rows(make):
    X, y = problem(30, 1)
    frame = pd.DataFrame(X, columns=["height"])
    model = make(keep_rows=False).fit(frame, y)
    with pytest.raises(ValueError, match="X must be given: this model does not hold"):
        PredictiveBandDisplay.from_estimator(model)
    display = PredictiveBandDisplay.from_estimator(model, frame, y, n_grid=10)
    assert display.name == "height"
    grid = pd.DataFrame({"height": display.x})
    np.testing.assert_allclose(display.mean, model.predict(grid), rtol=1e-12)
    assert PredictiveBandDisplay.from_estimator(model, frame, n_grid=5).points.shape == (0, 2)


def test_times_are_shown_as_dates():
    days = pd.date_range("2024-01-01", periods=40, freq="D")
    frame = pd.DataFrame({"day": days})
    model = quick_mixture().fit(frame, np.arange(40.0))
    display = PredictiveBandDisplay.from_estimator(model, frame, np.arange(40.0), n_grid=40)
    np.testing.assert_allclose(display.mean, model.predict(frame))
    assert display.is_time
    origin = datetime.date(1970, 1, 1)
    assert display.x[0] == (days[0].date() - origin).days


def test_one_row_and_constant_targets():
    for X, y in (([[1.0]], [2.0]), ([[1.0], [2.0], [4.0]], [2.0, 2.0, 2.0])):
        model = quick_mixture().fit(X, y)
        display = PredictiveBandDisplay.from_estimator(model, n_grid=5)
        np.testing.assert_allclose(display.mean, 2.0)
        display.figure_.canvas.draw()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"y": [1.0]}, "y must come with X"),
        (([[0.1], [0.2]], [1.0]), {}, "y must have 2 rows as X has"),
        ((), {"coverages": 1.5}, "coverages must lie strictly between 0 and 1"),
    ],
)
def test_errors_name_the_argument(line, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        PredictiveBandDisplay.from_estimator(line, *arguments, **options)


def test_models_must_have_one_feature_of_numbers(mixture):
    with pytest.raises(ValueError, match="model must have one feature, got 2: use PartialEffect"):
        PredictiveBandDisplay.from_estimator(mixture)
    words = np.array([["a"], ["b"]] * 5, dtype=object)
    model = quick_mixture().fit(words, np.arange(10.0))
    with pytest.raises(ValueError, match="must be a number or a time, got a category column"):
        PredictiveBandDisplay.from_estimator(model, words)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        ([1, 2, 3], {}, r"x must have shape \(2,\), got \(3,\)"),
        ([1, 2], {"samples": np.zeros((3, 1))}, r"samples must have shape \(2, k\), got \(3, 1\)"),
        ([1, 2], {"points": np.zeros(3)}, r"points must have shape \(n, 2\), got \(3,\)"),
    ],
)  # fmt: skip
def test_shapes_must_agree(line, x, options, message):
    with pytest.raises(ValueError, match=message):
        PredictiveBandDisplay.from_predictions(
            x, line.predict_distribution([[0.1], [0.2]]), **options
        )
