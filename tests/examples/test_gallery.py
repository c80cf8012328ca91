"""The scripts of the gallery: their headers, and each of them run on few rows."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from bench.sources import DATASETS

import triegp

plt = pytest.importorskip("matplotlib.pyplot")

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.name: path for path in sorted((ROOT / "examples").glob("plot_*.py"))}
WITH_DATA = {
    "plot_earth.py": "etopo20",
    "plot_flights.py": "flights3m",
    "plot_power.py": "houseelectric_2007h1",
}
# Sizes in the scripts, and smaller ones for a quick run.
SMALLER = {
    "plot_calibration.py": {"6_000": "600", "4_500": "450", "20_000": "500"},
    "plot_categories.py": {"6_000": "600", "4_000": "300"},
    "plot_earth.py": {},
    "plot_flights.py": {"100_000": "1_000", "60_000": "500", "20_000": "500", "500_000": "1_000"},
    "plot_one_dimension.py": {},
    "plot_power.py": {},
    "plot_streaming.py": {"60, 200, 2_000": "60, 20, 200"},
}
QUICK = {
    "BinaryTreeGPRegressor": {"n_members": 2, "n_candidates": 2, "max_iter": 5},
    "TrieGPRegressor": {"n_trees": 4, "max_iter": 3},
}


def small_earth(rng):
    """A grid of longitudes and latitudes, in no particular order."""
    longitude, latitude = np.meshgrid(np.arange(-175, 180, 5.0), np.arange(-87.5, 90, 5.0))
    X = rng.permutation(np.column_stack([longitude.ravel(), latitude.ravel()]))
    return X, 3_000 * np.sin(X[:, 0] / 30) * np.cos(X[:, 1] / 20)


def small_flights(rng):
    """Flights between the airports that the script asks about."""
    text = SCRIPTS["plot_flights.py"].read_text()
    airports = np.array(re.findall(r"\((\d+\.\d+), (-\d+\.\d+)\)", text), dtype=float)
    assert len(airports) == 6
    n = 4_000
    start, end = rng.integers(0, 6, (2, n))
    day = rng.integers(1, 183, n)
    X = [day, (day - 1) % 7, rng.integers(330, 1_440, n), 100 * abs(start - end)]
    places = np.column_stack([airports[start], airports[end]])
    X = np.column_stack([*X, places + rng.uniform(-0.005, 0.005, (n, 4))])
    return X.astype(np.float32), rng.exponential(10 + X[:, 2] / 60).astype(np.float32)


def small_power(rng):
    """Every eighth minute of half a year."""
    minutes = np.arange(np.datetime64("2007-01-01T00:00"), np.datetime64("2007-06-30"), 8)
    days, months = minutes.astype("M8[D]"), minutes.astype("M8[M]")
    minute = (minutes - days).astype(int)
    X = np.zeros((minutes.size, 11))
    X[:, 0], X[:, 1], X[:, 2] = (days - months).astype(int) + 1, months.astype(int) % 12 + 1, 2007
    X[:, 3], X[:, 4] = minute // 60, minute % 60
    return X, rng.gamma(2, 0.2 + X[:, 3] / 24)


MAKERS = {
    "etopo20": small_earth,
    "flights3m": small_flights,
    "houseelectric_2007h1": small_power,
}


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Estimators that train for a moment, a data folder, and figures that are not shown."""
    for name, few in QUICK.items():
        real = getattr(triegp, name)

        def make(real=real, few=few, **parameters):
            return real(**{**parameters, **few})

        monkeypatch.setattr(triegp, name, make)
    shown = []
    monkeypatch.setenv("TRIEGP_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["script"])
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.get_fignums())))
    backend = plt.get_backend()
    plt.switch_backend("Agg")
    with plt.rc_context():
        yield tmp_path, shown
    plt.close("all")
    plt.switch_backend(backend)


def run(name):
    text = SCRIPTS[name].read_text()
    for size, smaller in SMALLER[name].items():
        assert size in text, f"{name} has no {size}"
        text = text.replace(size, smaller)
    names = {"__name__": "__main__", "__file__": str(SCRIPTS[name])}
    exec(compile(text, str(SCRIPTS[name]), "exec"), names)
    return names


def test_all_scripts_are_known_here():
    assert set(SCRIPTS) == set(SMALLER)


@pytest.mark.parametrize("name", SCRIPTS)
def test_headers(name):
    text = SCRIPTS[name].read_text()
    title, underline, blank, *_ = compile(text, name, "exec").co_consts[0].strip().split("\n")
    assert underline == "=" * len(title)
    assert not blank
    needs = re.findall(r"^# needs: (\w+)$", text, re.MULTILINE)
    assert needs == re.findall(r'= read\("(\w+)"\)', text)
    assert needs == ([WITH_DATA[name]] if name in WITH_DATA else [])
    assert set(needs) <= set(DATASETS)
    assert text.endswith("\nplt.show()\n")


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_on_few_rows(name, quick):
    if name == "plot_one_dimension.py":
        pytest.importorskip("lightgbm")
    folder, shown = quick
    if name in WITH_DATA:
        X, y = MAKERS[WITH_DATA[name]](np.random.default_rng(0))
        (folder / WITH_DATA[name]).mkdir()
        np.savez(folder / WITH_DATA[name] / "data.npz", X=X, y=y)
    run(name)
    assert len(shown) == 1
    assert shown[0] >= 1
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()


@pytest.mark.parametrize("name", WITH_DATA)
def test_without_data_a_script_ends_with_a_sentence(name, quick):
    folder, shown = quick
    with pytest.raises(SystemExit, match=f"{WITH_DATA[name]}.*is not there") as ended:
        run(name)
    assert str(folder) in ended.value.code  # a text: exit code 1
    assert not shown


def test_the_picture_of_the_readme_is_written(quick, monkeypatch):
    pytest.importorskip("lightgbm")
    folder, _ = quick
    path = folder / "one.png"
    monkeypatch.setattr("sys.argv", ["script", str(path)])
    run("plot_one_dimension.py")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_runner_names_scripts_without_data(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("runner", ROOT / "tools" / "run_examples.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    monkeypatch.setenv("TRIEGP_DATA", str(tmp_path))
    found = {name: runner.missing(path) for name, path in SCRIPTS.items()}
    assert {name: needs for name, needs in found.items() if needs} == {
        name: [data] for name, data in WITH_DATA.items()
    }
    (tmp_path / "etopo20").mkdir()
    (tmp_path / "etopo20" / "data.npz").touch()
    assert runner.missing(SCRIPTS["plot_earth.py"]) == []
