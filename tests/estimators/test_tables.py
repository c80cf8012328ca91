"""Both estimators on tables with categories, gaps and times."""

import copy
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import triegp
from model_files import at, edited, parts_of, refused, write_parts
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

QUICK = [
    (BinaryTreeGPRegressor, {"n_members": 4, "n_candidates": 4, "max_iter": 20, "random_state": 0}),
    (TrieGPRegressor, {"n_trees": 8, "max_iter": 5, "random_state": 0}),
]
quickly = pytest.mark.parametrize(("kind", "options"), QUICK, ids=["mixture", "trie"])
EFFECT = {"a": -1.0, "b": 0.0, "c": 1.0, "d": 2.0}


def make_table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.choice(list(EFFECT), n)
    x, z = rng.random((2, n))
    day = rng.integers(0, 200, n)
    y = np.array([EFFECT[one] for one in kind]) + np.sin(6 * x) + 0.05 * rng.standard_normal(n)
    y += 0.5 * (day % 7 > 4)
    frame = pd.DataFrame(
        {
            "kind": kind,
            "x": np.where(rng.random(n) < 0.1, np.nan, x),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D"),
            "z": z,
        }
    )
    return frame, y


@pytest.fixture(scope="module", params=QUICK, ids=["mixture", "trie"])
def fitted(request):
    kind, options = request.param
    frame, y = make_table()
    return kind(**options).fit(frame, y)


def test_a_table_is_fitted_in_one_call(fitted):
    frame, y = make_table(200, seed=1)
    assert fitted.score(frame, y) > 0.8
    assert fitted.n_features_in_ == 4
    assert fitted.feature_names_in_.tolist() == ["kind", "x", "day", "z"]
    share = fitted.feature_importances_
    assert share.shape == (4,)
    np.testing.assert_allclose(share.sum(), 1.0)
    assert share[0] > 0.3
    assert fitted.importances_.prior_by_bit.shape[0] == 4


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "pyarrow"])
def test_frames_of_other_libraries_give_the_same_numbers(fitted, make):
    frame, _ = make_table(50, seed=1)
    table = make(frame)
    np.testing.assert_array_equal(fitted.predict(table), fitted.predict(frame))


def test_a_row_has_the_same_prediction_whatever_its_batch(fitted):
    frame, _ = make_table(20, seed=1)
    frame.loc[3, "kind"], frame.loc[5, "z"], frame.loc[6, "x"] = "new", np.nan, np.nan
    alone = [fitted.predict(frame[i : i + 1], return_std=True) for i in range(20)]
    mean, std = fitted.predict(frame, return_std=True)
    np.testing.assert_allclose(mean, [one[0] for one, _ in alone], rtol=1e-9)
    np.testing.assert_allclose(std, [one[0] for _, one in alone], rtol=1e-9)


def test_unseen_values_widen_and_all_questions_agree(fitted):
    frame, y = make_table(30, seed=1)
    frame["x"] = frame["x"].fillna(0.5)
    _, before = fitted.predict(frame, return_std=True)
    new = frame.copy()
    new.loc[:9, "kind"] = "new"
    new.loc[10:14, "z"] = np.nan
    mean, std = fitted.predict(new, return_std=True)
    assert (std[:10] > 0.7).all()  # the deviation of the effects is 1.1
    assert (std[:10] > 2 * before[:10]).all()
    assert (std[10:15] < 0.7).all()  # z says nothing
    np.testing.assert_allclose(std[15:], before[15:], rtol=1e-9)
    np.testing.assert_allclose(fitted.predict(new), mean, rtol=1e-9)
    found = fitted.predict_distribution(new)
    np.testing.assert_allclose(found.mean(), mean, rtol=1e-9)
    np.testing.assert_allclose(found.std(), std, rtol=1e-9)
    np.testing.assert_allclose(found.log_prob(y), fitted.log_density(new, y), rtol=1e-9)
    quantiles = fitted.predict_quantiles(new, [0.1, 0.9])
    np.testing.assert_allclose(found.cdf(quantiles[:, 1]), 0.9, rtol=1e-6)
    centre, cov = fitted.predict(new, return_cov=True)
    np.testing.assert_allclose(centre, mean, rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=0.05)
    drawn = fitted.sample_y(new, 400, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=0.3)
    assert (np.abs(drawn.std(axis=1) / std - 1.0) < 0.3).all()
    alone = fitted.predict(new[:10], return_std=True)[1]  # only such rows
    np.testing.assert_allclose(alone, std[:10], rtol=1e-9)
    assert fitted.outside_box(new)[:15].all()


def test_files_and_copies_keep_categories_by_value(fitted, tmp_path):
    frame, _ = make_table(40, seed=1)
    frame.loc[3, "kind"], frame.loc[5, "z"] = "new", np.nan
    fitted.save(tmp_path / "m")
    loaded = triegp.load(tmp_path / "m")
    turned = frame[frame.columns[::-1]].astype({"kind": "category"})
    for other in (loaded, copy.deepcopy(fitted)):
        np.testing.assert_allclose(other.predict(turned), fitted.predict(frame), rtol=1e-11)
    np.testing.assert_array_equal(loaded.predict(frame), copy.deepcopy(fitted).predict(frame))


@quickly
def test_new_categories_wait_for_the_next_fit(kind, options):
    frame, y = make_table(300)
    model = kind(**options, refit=False).fit(frame[:200], y[:200])
    more, y[200:] = frame[200:].assign(kind="A"), y[200:] - 10.0  # sorted before all others
    with pytest.warns(UserWarning, match=r"100 added rows .* categories"):
        model.partial_fit(more, y[200:])
    asked = more.head(3).assign(x=0.5)
    before = model.predict(asked)
    model.refresh()
    assert (model.predict(asked) < before - 5).all()
    table = pd.concat([frame[:200], more], ignore_index=True)
    fresh = kind(**options, refit=False).fit(table, y)
    np.testing.assert_array_equal(model.predict(asked), fresh.predict(asked))


@quickly
def test_gaps_that_come_in_a_stream_do_not_depend_on_questions(kind, options):
    rng = np.random.default_rng(0)
    X, y = rng.random((160, 2)), rng.random(160)
    X[100:][rng.random((60, 2)) < 0.4] = np.nan
    models = [kind(**options).fit(X[:100], y[:100]) for _ in range(2)]
    for start in range(100, 160, 10):
        for model in models:
            model.partial_fit(X[start : start + 10], y[start : start + 10])
        models[0].predict(X[:3])
    np.testing.assert_allclose(*(model.predict(X) for model in models), rtol=1e-9)


@quickly
def test_rows_that_wait_for_a_fit_keep_their_categories(kind, options, monkeypatch):
    frame, y = make_table(200)
    model = kind(**options).fit(frame[:80], y[:80])
    batches = [(80, "a"), (120, "Z"), (160, "A"), (180, "b")]  # a fit is due at 160 rows
    with monkeypatch.context() as patch:
        patch.setattr(kind, "_insert_all", lambda self: self._stream)
        for start, name in batches:
            some = slice(start, start + 20)
            model.partial_fit(frame[some].assign(kind=name), y[some])
    assert model._stream.plan.fit_at
    rows, listed = model.rows_, model._stream.columns.categories[0]
    for i, (start, name) in enumerate(batches):
        codes = rows.X[80 + 20 * i : 100 + 20 * i, 0]
        assert {listed[int(code)] for code in codes} == {name}
        np.testing.assert_array_equal(rows.y[80 + 20 * i : 100 + 20 * i, 0], y[start : start + 20])


def test_threads_that_add_categories_do_not_mix_them_up():
    frame, y = make_table(200)
    kind, options = QUICK[0]
    model = kind(**options, refit=False, keep_rows=True).fit(frame, y)
    names = [f"new{i}" for i in range(8)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with ThreadPoolExecutor(8) as pool:
            jobs = [
                pool.submit(model.partial_fit, frame[:5].assign(kind=name), np.full(5, float(i)))
                for i, name in enumerate(names)
            ]
            for job in jobs:
                job.result()
    listed, rows = model._stream.columns.categories[0], model.rows_
    assert sorted(listed[4:]) == names
    for i, name in enumerate(names):
        mine = rows.X[:, 0] == listed.index(name)
        np.testing.assert_array_equal(rows.y[mine, 0], np.full(5, float(i)))


def test_rows_that_share_an_unknown_category_covary(fitted):
    frame, _ = make_table(4, seed=1)
    asked = frame.assign(x=0.5, kind=["new", "new", "other", "a"])
    drawn = np.corrcoef(fitted.sample_y(asked, 300, random_state=0, latent=True))
    _, cov = fitted.predict(asked, return_cov=True, latent=True)
    size = np.sqrt(np.diag(cov))
    expected = cov / size / size[:, None]
    assert expected[0, 1] > 0.9
    assert abs(expected[0, 2]) < 0.3
    np.testing.assert_allclose(drawn[:3, :3], expected[:3, :3], atol=0.25)


@quickly
def test_rare_categories_beside_large_ones_stay_honest(kind, options):
    rng = np.random.default_rng(0)
    large, rare = np.repeat(np.arange(10), 150), np.arange(10, 110)
    codes = np.concatenate([large, rare])
    y = np.where(codes < 10, np.arange(110)[codes] / 3.0, 1.5) + rng.standard_normal(codes.size)
    frame = pd.DataFrame({"c": codes.astype(str), "x": rng.random(codes.size)})
    model = kind(**options).fit(frame, y)
    left, _ = model.loo_predict()
    assert abs(np.corrcoef(left[1500:], y[1500:])[0, 1]) < 0.35
    fresh = 1.5 + rng.standard_normal(100)
    told = model.loo_log_density()[1500:].mean()
    assert abs(told - model.log_density(frame[1500:], fresh).mean()) < 0.35


@pytest.mark.filterwarnings("ignore:.*copies of others")
@quickly
def test_weights_of_tables_are_repeats(kind, options):
    frame, y = make_table(150)
    weight = np.random.default_rng(0).integers(0, 3, 150)
    frame.loc[np.flatnonzero(weight == 0)[:3], "kind"] = ["only", "here", None]
    rows = np.repeat(np.arange(150), weight)
    one = kind(**options, keep_rows=False).fit(frame, y, sample_weight=weight)
    two = kind(**options, keep_rows=False).fit(frame.iloc[rows].reset_index(drop=True), y[rows])
    a, b = one._stream.layout, two._stream.layout
    assert a.roles == b.roles
    np.testing.assert_array_equal(a.fill, b.fill)
    np.testing.assert_array_equal(a.grid, b.grid)
    new, _ = make_table(30, seed=1)
    np.testing.assert_allclose(one.predict(new), two.predict(new), rtol=1e-6)
    assert one.outside_box(new.assign(kind="only", x=0.5)).all()


@quickly
def test_files_with_edited_tables_are_refused(kind, options, tmp_path):
    frame, y = make_table(300)
    parts = parts_of(kind(**options).fit(frame, y), training_data=True)
    k = parts[0]["model"]["stream"]["layout"]["roles"].index("rank")
    edits = [
        ("stream.kept.X", at((0, 0), 3e8)),
        ("stream.kept.X", at((0, 0), 1.5)),
        ("stream.kept.X", at((0, 0), -1.0)),
        ("stream.layout.grid", at((0, 0), 99.0)),
        ("stream.layout.grid", at((0, 0), 0.5)),
        ("stream.layout.n_known", at(0, 5)),
        ("stream.layout.source", at(0, 7)),
        (f"stream.layout.tables.{k}", at(0, 9.0)),
        (f"stream.layout.tables.{k}", lambda table: table[:2]),
        ("stream.columns.kinds.0", "number"),
        ("stream.columns.kinds.0", "colour"),
        ("stream.layout.roles", lambda roles: roles[:-1]),
        ("stream.layout.roles.0", "weekday"),
        ("stream.columns.categories.0", ["a", "b", "c", "c"]),
        ("stream.columns.categories.0", ["a", "b", "c", 4.0]),
    ]
    for place, change in edits:
        refused(write_parts(tmp_path / "e", *edited(parts, place, change)))
    triegp.load(write_parts(tmp_path / "e", *parts))


@quickly
def test_a_stream_of_tables_fits_anew_at_twice_the_rows(kind, options):
    frame, y = make_table(200)
    model = kind(**options).fit(frame[:90], y[:90])
    for start in range(90, 200, 10):
        batch = slice(start, start + 10)
        rows = frame[batch].assign(kind="e") if start == 150 else frame[batch]
        model.partial_fit(rows, y[batch])
    assert model._stream.plan.n_fit == 180
    rows = pd.concat([frame[:150], frame[150:160].assign(kind="e"), frame[160:]])
    assert not model.outside_box(rows[150:160].assign(x=0.5)).any()
    assert np.isfinite(model.predict(rows)).all()


@pytest.mark.parametrize("n_categories", [10, 400])
@quickly
def test_leave_one_out_is_honest_if_labels_mean_nothing(kind, options, n_categories):
    rng = np.random.default_rng(0)
    n = 1200
    frame = pd.DataFrame({"c": rng.integers(n_categories, size=n).astype(str), "x": rng.random(n)})
    y = rng.standard_normal(n)
    model = kind(**options).fit(frame, y)
    mean, std = model.loo_predict()
    assert np.mean((y - mean) ** 2) > 0.97 * y.var()
    fresh = rng.standard_normal(n)
    assert abs(model.loo_score_ - model.log_density(frame, fresh).mean()) < 0.1
    assert std.mean() > 0.9


@quickly
def test_many_categories_are_random_effects(kind, options):
    rng = np.random.default_rng(0)
    n, k = 3000, 300
    effect = rng.standard_normal(k)
    codes = rng.integers(k, size=2 * n)
    frame = pd.DataFrame({"c": np.char.add("c", codes.astype(str)), "x": rng.random(2 * n)})
    y = effect[codes] + 0.3 * rng.standard_normal(2 * n)
    model = kind(**options).fit(frame[:n], y[:n])
    mean, std = model.predict(frame[n:], return_std=True)
    assert np.sqrt(np.mean((mean - y[n:]) ** 2)) < 0.45  # the best is 0.32
    _, unseen = model.predict(frame[:5].assign(c="new"), return_std=True)
    assert (unseen > 2 * std.mean()).all()


@quickly
def test_hostile_tables(kind, options):
    frame, y = make_table(60)
    model = kind(**options)
    with pytest.raises(ValueError, match=r"X must be finite, got inf in column 'z' \(3\) at row 0"):
        model.fit(frame.assign(z=np.inf), y)
    with pytest.raises(TypeError, match="collect"):
        model.fit(pl.from_pandas(frame).lazy(), y)
    with pytest.raises(ValueError, match="y must"):
        model.fit(frame, np.where(y > 0, y, np.nan))
    with pytest.raises(ValueError, match="y must"):
        model.fit(frame, frame["kind"])
    with pytest.raises(ValueError, match="categorical_features names 'q'"):
        kind(**options, categorical_features=["q"]).fit(frame, y)
    model.fit(frame.assign(empty=np.nan, same=1.0, word="one"), y)  # columns that say nothing
    found = model.predict(frame.assign(empty=[1.0] * 60, same=1.0, word="one"))
    assert np.isfinite(found).all()
    with pytest.raises(ValueError, match="missing: 'empty', 'same', 'word'"):
        model.predict(frame)
    strict = kind(**options, outside="error").fit(frame[["kind", "z"]], y)
    with pytest.raises(ValueError, match=r"a missing value in column 'z' \(1\) at row 0"):
        strict.partial_fit(pd.DataFrame({"kind": ["a"], "z": [np.nan]}), [0.0])
    with pytest.raises(ValueError, match=r"an unknown category in column 'kind' \(0\) at row 1"):
        strict.predict(pd.DataFrame({"kind": ["a", "q"], "z": [0.5, 0.5]}))


@quickly
def test_numbers_as_categories_and_arrays_of_objects(kind, options):
    frame, y = make_table(200)
    codes = frame["kind"].map({"a": 7, "b": 3, "c": 5, "d": 1})
    X = np.stack([codes, frame["z"]], axis=1)
    one = kind(**options, categorical_features=[0]).fit(X, y)
    two = kind(**options).fit(np.array([codes.astype(str), frame["z"]], dtype=object).T, y)
    three = kind(**options, categorical_features=[True, False]).fit(X.tolist(), y)
    expected = one.predict(X)
    np.testing.assert_array_equal(three.predict(X), expected)
    objects = np.array([codes.astype(str), frame["z"]], dtype=object).T
    np.testing.assert_array_equal(two.predict(objects), expected)


@quickly
def test_tables_with_transformed_targets_and_in_pipelines(kind, options):
    frame, y = make_table(200)
    model = kind(**options, target_transform="log").fit(frame, np.exp(y))
    asked = frame.assign(kind="new")
    assert (model.predict_interval(asked) > 0).all()
    found = model.predict_distribution(asked)
    np.testing.assert_allclose(found.mean(), model.predict(asked), rtol=1e-9)
    columns = make_column_transformer(
        (StandardScaler(), ["z"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipe = make_pipeline(columns, kind(**options)).fit(frame, y)
    mean, std = pipe.predict(frame, return_std=True)
    low, high = pipe[-1].predict_interval(pipe[:-1].transform(frame)).T
    assert ((low < mean) & (mean < high) & (std > 0)).all()


@quickly
def test_numbers_without_gaps_are_what_they_were(kind, options):
    rng = np.random.default_rng(0)
    X, y = rng.random((120, 3)), rng.random(120)
    model = kind(**options).fit(X, y)
    assert model._stream.layout.plain
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        holes = X.copy()
        holes[4, 1] = np.nan
        mean, std = model.predict(holes, return_std=True)
    same = np.arange(120) != 4
    np.testing.assert_array_equal(mean[same], model.predict(X)[same])
    assert np.isfinite(mean[4])
    assert np.isfinite(std[4])


WITHOUT_FRAMES = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars", "pyarrow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np
from triegp import BinaryTreeGPRegressor
rng = np.random.default_rng(0)
X = np.empty((60, 2), dtype=object)
X[:, 0] = rng.random(60)
X[:, 1] = rng.choice(["a", "b"], 60)
X[3, 0] = None
model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, rng.random(60))
assert np.isfinite(model.predict([[0.5, "a"], [None, "c"]])).all()
"""


def test_tables_of_objects_need_no_library_of_frames():
    subprocess.run([sys.executable, "-c", WITHOUT_FRAMES], check=True)
