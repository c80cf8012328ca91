"""Facts of a report by second routes: the model's own methods, scikit-learn, and loops."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from report_problems import fit_quietly, make_evaluation, make_frame, make_numbers
from triegp import load
from triegp.encoding.tables import ReadTable, read_table
from triegp.metrics.forecasts import effective_rows, sample_rows
from triegp.plots.features import bin_values, column_of
from triegp.plots.text import show_number, show_value
from triegp.report import outliers
from triegp.report.effects import axis_of
from triegp.report.facts import gather
from triegp.report.outliers import outlying_rows, unusual_values
from triegp.report.words import percent, seconds, tiny


@pytest.fixture(scope="module")
def numbers():
    X, y = make_numbers()
    return X, y, fit_quietly(X[:240], y[:240])


@pytest.fixture(scope="module")
def frame():
    X, y = make_frame()
    return X, y, fit_quietly(X, y)


def test_leave_one_out_scores_are_those_of_the_models_methods(numbers):
    _, y, model = numbers
    scores = gather(model).targets[0].loo.scores
    mean, _ = model.loo_predict()
    assert scores.r2 == pytest.approx(r2_score(y[:240], mean))
    assert scores.rmse == pytest.approx(root_mean_squared_error(y[:240], mean))
    assert scores.mae == pytest.approx(mean_absolute_error(y[:240], mean))
    assert scores.nll == pytest.approx(-model.loo_score_)


def test_test_scores_are_those_of_predictions(numbers):
    X, y, model = numbers
    test = gather(model, X[240:], y[240:]).targets[0].test
    mean = model.predict(X[240:])
    assert test.scores.r2 == pytest.approx(r2_score(y[240:], mean))
    assert test.scores.nll == pytest.approx(-model.log_density(X[240:], y[240:]).mean())
    for one in test.scores.coverages:
        low, high = model.predict_interval(X[240:], coverage=one.nominal).T
        assert one.observed == np.mean((low <= y[240:]) & (y[240:] <= high))
        assert one.width == pytest.approx(np.mean(high - low))
    # The baseline knows the training targets only.
    spread = norm(y[:240].mean(), y[:240].std())
    assert test.baseline.nll == pytest.approx(-spread.logpdf(y[240:]).mean())
    assert test.baseline.rmse == pytest.approx(np.sqrt(np.mean((y[240:] - y[:240].mean()) ** 2)))


def test_crps_of_the_baseline_by_integration(numbers):
    _, y, model = numbers
    baseline = gather(model).targets[0].loo.baseline
    centre, spread = y[:240].mean(), y[:240].std()

    def one(value):
        options = {"points": [value], "limit": 200}
        ends = centre - 12 * spread, centre + 12 * spread
        return quad(lambda t: (norm.cdf(t, centre, spread) - (value <= t)) ** 2, *ends, **options)[
            0
        ]

    assert baseline.crps == pytest.approx(np.mean([one(value) for value in y[:240]]), rel=1e-6)
    assert baseline.r2 == pytest.approx(0.0, abs=1e-12)


def test_quantiles_of_intervals(numbers):
    _, _, model = numbers
    forecast = gather(model).targets[0].loo.forecast
    for level in (0.5, 0.8, 0.9, 0.95):
        np.testing.assert_allclose(
            forecast.interval(level), model.loo_distribution().interval(level)
        )


@pytest.mark.parametrize(
    ("n_rows", "inside", "off"),
    [(400, 340, True), (400, 370, False), (100_000, 90_800, False), (100_000, 91_100, True)],
)
def test_coverages_stand_out_if_neither_chance_nor_a_percentage_point_explains_them(
    n_rows, inside, off
):
    """Of 400 rows chance puts 87 to 93 % inside, of 100,000 89.8 to 90.2 %."""
    y = np.where(np.arange(n_rows) < inside, 0.0, 2.0)
    coverage = make_evaluation(y, 0.0, 1.0).scores.coverage(0.9)
    assert coverage.observed == inside / n_rows
    assert coverage.low < 0.9 < coverage.high
    assert coverage.is_off == off


def test_rows_of_weight_zero_do_not_count_and_weights_do(tmp_path):
    X, y = make_numbers(120)
    weight = np.r_[np.zeros(20), np.ones(60), np.full(40, 2.0)]
    y[:20] = 1e4
    model = fit_quietly(X, y, sample_weight=weight)
    facts = gather(model)
    target = facts.targets[0]
    mean, _ = model.loo_predict()
    error = np.abs(y - mean)[20:]
    assert facts.weighted
    assert target.loo.scores.n_rows == 100
    assert target.loo.scores.mae == pytest.approx(np.average(error, weights=weight[20:]))
    assert {row.row for row in target.worst} <= set(range(20, 120))
    model.save(tmp_path / "m")  # without rows
    loaded = gather(load(tmp_path / "m"))
    assert loaded.weighted
    assert loaded.targets[0].loo.scores.mae == pytest.approx(target.loo.scores.mae)
    assert effective_rows(weight[20:], 100) == pytest.approx(140**2 / (60 + 160))


def test_worst_rows_are_those_of_largest_error(numbers):
    _, y, model = numbers
    rows = gather(model, n_rows=4).targets[0].worst
    mean, _ = model.loo_predict()
    np.testing.assert_array_equal(
        [row.row for row in rows], np.argsort(-np.abs(y[:240] - mean))[:4]
    )
    interval = model.loo_distribution().interval(0.9)
    np.testing.assert_allclose(
        [(row.low, row.high) for row in rows], interval[[r.row for r in rows]]
    )


def test_planted_outliers_are_found_first():
    X, y = make_numbers(400)
    planted = [17, 230, 391]
    y[planted] += [30.0, -25.0, 40.0]
    target = gather(fit_quietly(X, y, n_members=4, max_iter=20)).targets[0]
    assert sorted(row.row for row in target.outliers[:3]) == planted
    assert 3 <= target.n_outliers <= 12  # and neighbours, which they pull
    assert all(row.expected < 0.05 for row in target.outliers)
    assert target.outliers[0].y == y[target.outliers[0].row]


def test_distance_of_outliers_by_hand():
    target = make_evaluation(np.r_[np.zeros(98), 7.0, -8.0], 0.0, 1.0)
    rows, n_rows = outlying_rows(target.forecast, None, 5)
    assert n_rows == 2
    np.testing.assert_allclose([row.z for row in rows], [-8.0, 7.0])
    assert rows[1].expected == pytest.approx(200 * norm.sf(7.0))
    assert rows[0].unusual == ()


def test_as_many_outliers_are_found_as_long_tails_have(monkeypatch):
    monkeypatch.setattr(outliers, "FEWEST_EXAMINED", 5)
    target = make_evaluation(np.r_[np.zeros(1_970), np.full(30, 9.0)], 0.0, 1.0)
    _, n_rows = outlying_rows(target.forecast, None, 5)
    assert n_rows == 30 > outliers.MANY_OUTLIERS * 2_000


def test_importances_are_sorted_and_complete(frame):
    X, _, model = frame
    found = gather(model).targets[0].importances
    assert sorted(one.label for one in found) == sorted(X.columns)
    shares = [one.share for one in found]
    assert shares == sorted(shares, reverse=True)
    assert found[0].label == "kind"
    for one in found:
        assert one.share == model.feature_importances_[one.feature]
        assert sum(one.by_bit) + one.smooth == pytest.approx(one.share)


def test_effects_are_averages_of_predictions(frame):
    X, _, model = frame
    effect = next(e for e in gather(model).targets[0].effects if e.axis.label == "kind")
    some = X.iloc[sample_rows(600, 60)]
    for word, mean in zip(effect.axis.ticks, effect.mean, strict=True):
        assert mean == pytest.approx(model.predict(some.assign(kind=word), latent=True).mean())
    assert np.all(effect.low < effect.mean)
    assert np.all(effect.mean < effect.high)


@pytest.mark.parametrize("transform", ["identity", "log"])
def test_effects_of_one_feature_and_of_pairs_agree(transform):
    """The mean of y along one feature, of transformed targets too; bands in the range of y."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (300, 2)).astype(float)
    y = np.exp(0.5 * X[:, 0] + 1.0 * rng.standard_normal(300))
    model = fit_quietly(X, y, target_transform=transform)
    target = gather(model).targets[0]
    some = X[sample_rows(300, 60)]
    for effect in target.effects:
        for k, value in enumerate(effect.axis.values):
            changed = some.copy()
            changed[:, effect.axis.feature] = value
            assert effect.mean[k] == pytest.approx(model.predict(changed).mean())
        assert np.all(effect.low < effect.mean)
        assert np.all(effect.mean < effect.high)
        if transform == "log":
            assert np.all(effect.low > 0)
    first = next(one for one in target.effects if one.axis.feature == 0)
    share = np.mean(X[:, [0]] == first.axis.values, axis=0)
    assert share @ first.mean == pytest.approx(y.mean(), rel=0.15)


def test_bands_of_transformed_targets_in_closed_form():
    """Means of y given the ends of the interval of f: those of a log-normal distribution."""
    rng = np.random.default_rng(0)
    X = np.arange(4.0)[rng.integers(0, 4, 200)][:, None]
    y = np.exp(0.3 * X[:, 0] + 0.5 * rng.standard_normal(200))
    model = fit_quietly(X, y, target_transform="log", mixture="best")
    effect = gather(model).targets[0].effects[0]
    grid = effect.axis.values[:, None]
    new, function = (model.predict_distribution(grid, latent=latent) for latent in (False, True))
    noise = new.base.var() - function.base.var()
    ends = function.quantile(np.array([0.05, 0.95])) * np.exp(0.5 * noise[:, None])
    # Means keep to the range of the training targets: what lies beyond is up to 1 % of them.
    np.testing.assert_allclose(effect.low, ends[:, 0], rtol=0.015)
    np.testing.assert_allclose(effect.high, ends[:, 1], rtol=0.015)


def test_pairs_of_features_that_add_up_have_no_interplay():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    additive = fit_quietly(X, X[:, 0] + X[:, 1], n_members=4)
    product = fit_quietly(X, (X[:, 0] - 0.5) * (X[:, 1] - 0.5), n_members=4)
    one, other = (gather(model).targets[0].pair for model in (additive, product))
    assert one.interplay < 0.1
    assert other.interplay > 0.5
    assert other.mean.shape == (10, 10)
    alike, crossed = (gather(model).targets[0].effects[0] for model in (additive, product))
    assert alike.common > 0.9
    assert crossed.common < 0.25


def test_axes_of_every_kind(frame):
    _, _, model = frame
    table = ReadTable(model.rows_.features, model.columns_)
    size, kind, day, grade = (axis_of(table, j) for j in range(4))
    assert size.ordered
    assert np.isfinite(size.values).all()
    assert set(kind.ticks) == {"a", "b", "c"}
    assert not kind.ordered
    assert day.ticks[0].startswith("2024-01-0")
    assert grade.ticks == ("low", "high")


def test_two_numbers_are_points_in_their_order():
    X = np.array([[1.0], [1.0], [0.0], [np.nan]])
    axis = axis_of(ReadTable(*read_table(X, None)), 0)
    assert not axis.ordered
    assert axis.ticks == ("0", "1", "missing")
    assert axis_of(ReadTable(*read_table(np.array([[1.0], [2.0], [4.0]]), None)), 0).ordered


def test_bins_hold_all_rows_and_say_which(frame):
    X, _, model = frame
    table = ReadTable(model.rows_.features, model.columns_)
    bins, labels, edges = bin_values(column_of(table, 0), 5)
    assert labels[-1] == "missing"
    assert edges.size == 6
    np.testing.assert_array_equal(bins == 5, X["size"].isna())
    counts = np.bincount(bins)[:5]
    assert counts.max() - counts.min() <= 1
    bins, labels, edges = bin_values(column_of(table, 1), 2, "{:,} other categories")
    largest = X["kind"].value_counts().index[0]
    assert (labels, edges) == ([largest, "2 other categories"], None)
    np.testing.assert_array_equal(bins == 0, X["kind"] == largest)


def test_bins_of_numbers_end_where_their_labels_say():
    values = np.random.default_rng(0).lognormal(size=(500, 1))
    data, columns = read_table(values, None)
    bins, labels, _ = bin_values(column_of(ReadTable(data, columns), 0), 6)
    for k, label in enumerate(labels):
        low, high = (float(end) for end in label.split(" to "))
        own = values[bins == k]
        assert low <= own.min() * 1.01
        assert own.max() <= high * 1.01


def test_regions_are_means_over_bins(frame):
    X, y, model = frame
    group = next(g for g in gather(model).targets[0].regions if g.feature == "kind")
    interval = model.loo_distribution().interval(0.9)
    inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
    assert {region.label for region in group.regions} == {"a", "b", "c"}
    for region in group.regions:
        own = X["kind"].to_numpy() == region.label
        assert region.n_rows == own.sum()
        assert region.width == pytest.approx(np.diff(interval[own], axis=1).mean())
        assert region.coverage == pytest.approx(inside[own].mean())


def test_noise_that_differs_is_found_by_region():
    rng = np.random.default_rng(0)
    X = rng.random((1_000, 3))
    y = (0.1 + 2.0 * (X[:, 1] > 0.5)) * rng.standard_normal(1_000)
    first = gather(fit_quietly(X, y, n_members=4)).targets[0].regions[0]
    assert first.feature == "feature 1"
    assert first.regions[-1].width > 3 * first.regions[0].width


def test_unusual_values_are_named(frame):
    _, _, model = frame
    data = model.rows_.features.copy()
    data[7, 0] = 9.0
    found = unusual_values(ReadTable(data, model.columns_), np.array([7]))[0]
    assert found[0][:2] == ("size", "9")
    assert found[0][2] == pytest.approx(2 / 600)


def test_what_was_fitted(frame):
    X, _, model = frame
    fit = gather(model).fit
    assert (fit.estimator, fit.n_rows, fit.n_features) == ("BinaryTreeGPRegressor", 600, 4)
    assert dict(fit.kinds) == {"number": 1, "category": 1, "ordered category": 1, "time": 1}
    assert fit.seconds == model.fit_seconds_
    assert ("max_iter", "5") in fit.parameters
    assert fit.targets[0].n_trees == len(model.ensembles_[0].members)
    assert fit.constant == ()
    X, y = make_numbers(60)
    X[:, 1] = 3.0
    facts = gather(fit_quietly(X, y))
    assert facts.fit.constant == ("feature 1",)
    assert sorted(one.feature for one in facts.targets[0].importances) == [0, 2]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (-1234567.0, "\N{MINUS SIGN}1,234,567"), (0.00012345, "0.0001234"),
     (1.5e-7, "1.5e\N{MINUS SIGN}7"),
     (2e12, "2e12"), (0.5, "0.5"), (99.99999, "100"), (np.nan, "missing")],
)  # fmt: skip
def test_numbers_as_text(value, shown):
    assert show_number(value) == shown


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [(np.nan, "number", "missing"), (1.0, "category", "b"), (0.5, "duration", "0.5 days"),
     (19723.0, "time", "2024-01-01"), (19723.5, "time", "2024-01-01 12:00"),
     (19723.5 + 1 / 86_400, "time", "2024-01-01 12:00:01")],
)  # fmt: skip
def test_values_of_every_kind_as_text(value, kind, shown):
    assert show_value(value, kind, ("a", "b")) == shown


def test_shares_in_percent():
    assert percent(0.12345) == "12.3\u202f%"
    assert percent(-0.0001) == "0.0\u202f%"
    assert percent(-0.25, 0) == "\N{MINUS SIGN}25\u202f%"
    assert percent(np.nan) == "—"


@pytest.mark.parametrize(
    ("value", "shown"), [(2.0, "2"), (0.0123, "0.012"), (3e-5, "< 10⁻⁴"), (1e-200, "< 10⁻¹²")]
)
def test_small_counts(value, shown):
    assert tiny(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "not recorded"),
        (0.25, "250\u202fms"),
        (30.0, "30.0\u202fs"),
        (600.0, "10.0\u202fmin"),
    ],
)
def test_durations(value, shown):
    assert seconds(value) == shown
