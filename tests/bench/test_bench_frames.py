"""The parts of `python -m bench tables`: frames, gaps, methods on frames, cells, the page."""

import json

import numpy as np
import pytest
from bench.frames_data import (
    NOISE_SD,
    SYNTHETIC,
    TABLES,
    WITHOUT_GAPS,
    Table,
    airports,
    block_gaps,
    categories,
    load,
    scattered_gaps,
    smooth,
)
from bench.methods.frames import METHODS, as_categories, as_labels, categorical
from bench.methods.task import Task, missing
from bench.sources import DataError
from scipy.stats import multivariate_normal

from bench import __main__ as command
from bench import frames, frames_data, frames_page
from tolerances import DENSE

pd = pytest.importorskip("pandas")
PEERS = ("lightgbm", "lightgbm-quantiles", "catboost")


def mixed_frame(n=400, seed=0):
    """Rows with a category, strings, dates and numbers, some of them missing, and a target."""
    rng = np.random.default_rng(seed)
    code, x = rng.integers(0, 3, n), rng.random(n)
    day = rng.integers(0, 50, n)
    y = 3.0 * code + x + 0.05 * day + 0.1 * rng.standard_normal(n)
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical.from_codes(np.where(rng.random(n) < 0.1, -1, code), list("abc")),
            "word": np.array(["one", "two", "three"], object)[code],
            "date": pd.Timestamp("2020-01-01") + pd.to_timedelta(day, unit="D"),
            "x": np.where(rng.random(n) < 0.2, np.nan, x),
        }
    )
    return frame, y


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Two small tables instead of the large ones, and an empty folder for cells."""
    small = {
        "mixed": Table("mixed", lambda seed: mixed_frame(seed=seed), None, "of mixed columns"),
        "categories-10": Table("categories-10", categories(10, 500), None, "synthetic"),
    }
    monkeypatch.setattr(frames, "FOLDER", tmp_path / "tables")
    for module in (frames, frames_data):
        monkeypatch.setattr(module, "TABLES", small)
    return tmp_path


# Tables


def test_gaps_are_as_many_as_asked_for():
    rng = np.random.default_rng(0)
    assert scattered_gaps((5_000, 4), rng, 0.2).mean() == pytest.approx(0.2, abs=0.02)
    gaps = block_gaps((5_000, 4), rng, 0.2, run_rows=50)
    assert gaps.mean(axis=0).tolist() == [0.2] * 4
    edges = np.flatnonzero(np.diff(np.pad(gaps[:, 0].astype(int), 1)))
    lengths = np.diff(edges)[::2]
    assert np.all(lengths % 50 == 0)  # of runs that touch, the sum
    assert not np.array_equal(gaps[:, 0], gaps[:, 1])


def test_airports_are_pairs_of_coordinates():
    places = np.array([[36.1, -115.2], [33.6, -84.4], [36.1, -115.2], [33.6, -115.2]], np.float32)
    found = airports(places)
    assert list(found) == [
        "36.1000 -115.2000",
        "33.6000 -84.4000",
        "36.1000 -115.2000",
        "33.6000 -115.2000",
    ]


def test_parts_are_apart_and_limited(monkeypatch):
    frame = pd.DataFrame({"x": np.arange(1_000.0)})
    table = Table("small", lambda _: (frame, frame["x"].to_numpy()), 100, "")
    monkeypatch.setattr(frames_data, "TABLES", {"small": table})
    monkeypatch.setattr(frames_data, "TEST_ROWS", 50)
    task, X, y = load("small", 0)
    assert (len(task.y), len(task.y_valid), len(y)) == (100, 25, 50)
    assert len({*task.y, *task.y_valid, *y}) == 175
    np.testing.assert_array_equal(X["x"], y)
    np.testing.assert_array_equal(task.X["x"], task.y)
    again, _, _ = load("small", 0)
    np.testing.assert_array_equal(again.y, task.y)
    assert not np.array_equal(load("small", 1)[0].y, task.y)


def test_labels_of_synthetic_tables_have_skewed_counts():
    frame, y = categories(1_000, 5_000)(0)
    counts = frame["shop"].value_counts()
    assert counts.iloc[0] > 20 * counts.median()
    assert 300 < len(counts) <= 1_000
    one = (frame["shop"] == counts.index[0]).to_numpy()
    rest = (y - smooth(frame))[one]
    line = np.polynomial.Polynomial.fit(frame["a"][one], rest, 1)
    assert np.std(rest - line(frame["a"][one])) == pytest.approx(NOISE_SD, rel=0.1)


def fake_columns(name, n=2_000):
    """Arrays of the shape of a stored table, with values of its kind."""
    rng = np.random.default_rng(0)
    if name == "flights3m":
        low = rng.integers([1, 0, 0, 20], [183, 7, 1440, 4_000], (n, 4))
        X = np.hstack([low, rng.integers(20, 25, (n, 4))])
    elif name == "bike":
        sizes = [2, 12, 28, 4, 2, 12, 24, 2, 7, 2, 4]
        codes = rng.integers(0, sizes, (n, 11)) - 0.4973
        X = np.hstack([codes, rng.random((n, 6))])
    else:
        X = rng.random((n, 11))
    return X.astype(np.float32), rng.random(n).astype(np.float32)


@pytest.mark.parametrize("name", [name for name in TABLES if name not in SYNTHETIC])
def test_tables_have_the_columns_that_they_state(name, monkeypatch):
    monkeypatch.setattr(frames_data, "read", fake_columns)
    monkeypatch.setattr(frames_data, "RUN_ROWS", 100)
    frame, y = TABLES[name].build(0)
    assert (len(frame), y.dtype) == (len(y), np.float64)
    expected = {"flights": (3, 1), "bike": (8, 1)}.get(name, (0, 0))
    dates = frame.select_dtypes("datetime").columns
    assert (len(categorical(frame)), len(dates)) == expected
    if name == "flights":
        assert frame["date"].min() == pd.Timestamp("2001-01-01")
    if name == "bike":
        assert sorted(frame["date"].dt.year.unique()) == [2011, 2012]
        assert frame["hour"].nunique() == 24
    share = frame.isna().to_numpy().mean()
    assert share == pytest.approx(0.2 if name in WITHOUT_GAPS else 0.0, abs=0.02)


# Methods


def test_frames_are_prepared_as_the_libraries_demand():
    frame, _ = mixed_frame()
    frame.loc[0, "date"] = pd.NaT
    frame.loc[1, "word"] = "new"
    frame.loc[2, "word"] = None
    assert categorical(frame) == ["kind", "word"]
    like = frame.iloc[3:]
    prepared = as_categories(frame, like)
    assert prepared["word"].isna().tolist()[:3] == [False, True, True]
    assert set(prepared["word"].cat.categories) == {"one", "two", "three"}
    pd.testing.assert_series_equal(
        prepared["kind"].astype(object), frame["kind"].astype(object), check_dtype=False
    )
    labels = as_labels(frame)
    assert labels["word"].tolist()[1:3] == ["new", "missing"]
    assert set(labels["kind"]) == {"a", "b", "c", "missing"}
    for found in (prepared, labels):
        assert np.isnan(found["date"][0])
        days = found["date"][3:] - 18_262  # 2020-01-01
        np.testing.assert_array_equal(days, (like["date"] - pd.Timestamp("2020-01-01")).dt.days)
        np.testing.assert_array_equal(found["x"], frame["x"])


@pytest.mark.parametrize("name", PEERS)
def test_peers_take_categories_dates_and_gaps(name):
    if absent := missing(METHODS[name]):
        pytest.skip(f"needs {', '.join(absent)}")
    frame, y = mixed_frame()
    frame.loc[399, "word"] = "new"
    task = Task(frame[:250], y[:250], frame[250:300], y[250:300], 0)
    predict = METHODS[name].fit(task)
    found = frames.score(predict(frame[300:]), y[300:], task.y.std())
    assert found["rmse"] < 0.35


def test_estimators_are_given_the_frame_as_it_is(monkeypatch):
    import triegp

    given = []

    class Estimator:
        def __init__(self, random_state):
            self.seed = random_state

        def fit(self, X, y):
            given.append((self.seed, X, y))
            return self

    frame, y = mixed_frame()
    for name, kind in (("triegp", "BinaryTree"), ("triegp-flagship", "Trie")):
        monkeypatch.setattr(triegp, f"{kind}GPRegressor", Estimator)
        METHODS[name].fit(Task(frame, y, frame, y, 7))
        seed, X, targets = given.pop()
        assert seed == 7
        assert X is frame
        assert targets is y


def test_the_known_model_is_the_posterior_of_its_gaussian_process():
    frame, y = categories(4, 60)(0)
    frame.loc[59, "shop"] = "new"
    old, new = frame[:50], frame[50:]
    found = METHODS["known-model"].fit(Task(old, y[:50], old, y[:50], 0))(new)
    same = frame["shop"].to_numpy()[:, None] == frame["shop"].to_numpy()
    t = frame["a"].to_numpy() - 0.5
    K = same * (1 + np.outer(t, t)) + NOISE_SD**2 * np.eye(60)
    gain = np.linalg.solve(K[:50, :50], K[:50, 50:]).T
    rest = (y - smooth(frame))[:50]
    np.testing.assert_allclose(found.mean(), smooth(new) + gain @ rest, rtol=DENSE)
    var = np.diag(K[50:, 50:] - gain @ K[:50, 50:])
    np.testing.assert_allclose(found.var(), var, rtol=DENSE)
    assert multivariate_normal.logpdf(y, smooth(frame), K) > multivariate_normal.logpdf(y, cov=K)


# Cells


def test_one_fit_is_stored_for_both_parts_and_not_run_again(small, monkeypatch, capsys):
    fits = []
    method = METHODS["known-model"]

    def fit(task):
        fits.append(task.seed)
        return method.fit(task)

    counted = type(method)("known-model", (), fit, "")
    monkeypatch.setitem(frames.METHODS, "known-model", counted)
    arguments = ["tables", "--data", "categories-10", "--methods", "known-model", "--seeds", "1"]
    command.main([*arguments, "--part", "valid", "test"])
    command.main(arguments)
    assert fits == [1]
    assert "nll" in capsys.readouterr().out
    cell = json.loads((small / "tables/test/categories-10/known-model-1.json").read_text())
    assert cell["status"] == "ok"
    assert (cell["n_train"], cell["n_new"]) == (320, 100)
    assert (small / "tables/valid/categories-10/known-model-1.json").exists()
    command.main([*arguments, "--again"])
    assert fits == [1, 1]


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (DataError("it is nowhere"), "missing", "it is nowhere"),
        (TypeError("no\n  strings"), "error", "TypeError: no strings"),
    ],
)
def test_failures_are_told_and_not_stored(small, monkeypatch, error, status, note):
    def fail(*_):
        raise error

    monkeypatch.setattr(frames, "load", fail)
    cell = frames.run_cells(["test"], "mixed", "triegp", 0)["test"]
    assert (cell["status"], cell["note"]) == (status, note)
    assert note in frames.line_of(cell)
    assert not (small / "tables").exists()


def test_a_method_whose_library_is_missing_is_not_run(small, monkeypatch):
    absent = type(METHODS["lightgbm"])("lightgbm", ("no_such_module",), None, "")
    monkeypatch.setitem(frames.METHODS, "lightgbm", absent)
    cell = frames.run_cells(["test"], "mixed", "lightgbm", 0)["test"]
    assert (cell["status"], cell["note"]) == ("missing", "needs no_such_module")


def test_the_known_model_is_for_synthetic_tables_only(small, capsys):
    command.main(["tables", "--data", "categories-10", "--methods", "known-model", "--seeds", "0"])
    assert "known-model" in capsys.readouterr().out
    assert all(frames.applies("known-model", name) for name in SYNTHETIC)
    assert not frames.applies("known-model", "bike")
    assert frames.applies("triegp", "bike")


# The page


def fake_cell(data, method, seed, nll):
    path = frames.path_of("test", data, method, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {
        "status": "ok",
        "nll": nll,
        "rmse": 0.5,
        "crps": 0.25,
        "coverage": {"90": 0.9},
        "machine": {"lightgbm": "4.6", "cpu": "a cpu"},
    }
    path.write_text(json.dumps(cell))


def test_the_page_shows_means_and_what_gaps_cost(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "FOLDER", tmp_path / "tables")
    for seed in range(3):
        fake_cell("house", "lightgbm", seed, 0.1 * seed)
        fake_cell("house-gaps", "lightgbm", seed, 0.1 * seed + 0.5)
        fake_cell("house-gaps", "lightgbm-quantiles", seed, None)
    fake_cell("house", "lightgbm-quantiles", 0, None)
    fake_cell("bike", "catboost", 0, -1.0)
    frames_page.main(tmp_path)
    text = (tmp_path / "tables_results.md").read_text()
    nll = text[text.index("## NLL") : text.index("## RMSE")]
    assert "| 0.100 ± 0.115 | 0.600 ± 0.115 | not run |" in nll
    assert "| -1.000 (1 of 3 seeds) |" in nll
    assert "| lightgbm-quantiles | not run | not run | - (1 of 3 seeds) | - |" in nll
    cost = text[text.index("## What") : text.index("CRPS with gaps")]
    assert "| lightgbm | 0.500 ± 0.000 | - |" in cost
    assert "known-model" not in cost
    assert "| 90.0 ± 0.0 |" in text
    assert "| lightgbm 4.6 |" in text
