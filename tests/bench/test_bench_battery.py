"""The parts of `python -m bench battery`: its design, its figures, stored cells, its section."""

import json
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from bench import __main__ as command
from bench import battery, battery_page, calibration, calibration_page


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "FOLDER", tmp_path)
    return tmp_path


class Truth:
    """A model that knows Gaussian noise and the function; its score is 0.1 too good."""

    def __init__(self, r2):
        self.r2 = r2

    def fit(self, X, y):
        self.X, self.y = X, y

    def normal(self, X):
        return norm(np.sqrt(2 * self.r2) * np.sin(2 * np.pi * X[:, 0]), np.sqrt(1 - self.r2))

    def predict_interval(self, X, coverage):
        return np.stack(self.normal(X).interval(coverage), axis=1)

    def loo_log_density(self):
        return self.normal(self.X).logpdf(self.y) + np.tile([-1.0, 1.0], len(self.y) // 2)

    @property
    def loo_score_(self):
        return np.mean(self.loo_log_density()) + 0.1


def test_all_pairs_of_levels_occur():
    cells = [cell for cell in battery.fraction() if cell.n_rows <= 3_000]
    assert len(cells) == 60
    sizes = (300, 1_000, 3_000)
    assert {(c.noise, c.r2, c.n_rows) for c in cells} == set(
        product(battery.NOISES, battery.SHARES, sizes)
    )
    features = battery.FEATURES
    assert {(c.noise, c.n_features) for c in cells} == set(product(battery.NOISES, features))
    assert {(c.r2, c.n_features) for c in cells} == set(product(battery.SHARES, features))
    assert {(c.n_rows, c.n_features) for c in cells} == set(product(sizes, features))
    names = [cell.name for cell in [*battery.fraction(), *battery.regions()]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", battery.NOISES)
def test_noise_has_mean_0_and_variance_1(name):
    np.testing.assert_allclose(battery.NOISES[name].stats("mv"), (0.0, 1.0), atol=1e-12)


def test_the_truth_has_the_right_coverage_and_no_excess_but_its_own():
    cell = battery.NoSignal("Gaussian", 0.2, 400, 3)
    figures = battery.measure_no_signal(cell, Truth(0.2))
    assert figures["loo_excess"] == pytest.approx(0.1)
    assert figures["loo_error"] == pytest.approx(1 / np.sqrt(400))
    for c in calibration.LEVELS:
        assert figures[str(c)] == pytest.approx(c, abs=4.0)
    assert battery_page.excess(figures) == pytest.approx(2.0)


@pytest.mark.parametrize("cell", battery.regions()[::3], ids=lambda cell: cell.name)
def test_every_region_has_rows(cell):
    for new in (False, True):
        X, y, masks = cell.draw(cell.n_rows, np.random.default_rng(0), new=new)
        assert len(X) == len(y) == cell.n_rows
        assert all(0.1 < rows.mean() <= 1.0 for rows in masks.values())


def test_a_stored_cell_is_not_measured_again(folder, monkeypatch):
    monkeypatch.setattr(calibration, "new_estimator", lambda name, seed: Truth(0.0))
    cells = [
        battery.NoSignal("Gaussian", 0.0, 20, 1),
        battery.Regions("no signal", battery.no_signal, 50, 3),
    ]
    monkeypatch.setattr(battery, "fraction", lambda: cells[:1])
    monkeypatch.setattr(battery, "regions", lambda: cells[1:])
    monkeypatch.setattr(calibration_page, "main", lambda: None)
    command.main(["battery", "--estimators", "B"])
    stored = battery.read()
    assert list(stored) == [f"B: {cell.name}" for cell in cells]
    assert stored[f"B: {cells[1].name}"]["all"] == pytest.approx(90.0, abs=3.0)
    monkeypatch.setattr(calibration, "new_estimator", None)
    command.main(["battery", "--estimators", "B"])
    assert battery.read() == stored


def test_what_is_outside_of_the_goals_is_named(folder):
    good, loud, scored, *_ = battery.fraction()
    right = {"50": 50.0, "90": 90.0, "99": 99.0, "loo_excess": 0.019, "loo_error": 0.01}
    by_seed = {c.seed: c for c in battery.regions() if c.about == "noise along a rotated direction"}
    stored = {
        f"B: {good.name}": right,
        f"B: {loud.name}": right | {"90": 86.9},
        f"F: {scored.name}": right | {"loo_excess": 0.03},
        f"F: {by_seed[0].name}": {"loud half": 80.0, "quiet half": 90.0, "fit_seconds": 1.0},
        f"F: {by_seed[1].name}": {"loud half": 84.0, "quiet half": 94.0, "fit_seconds": 1.0},
    }
    battery.path().write_text(json.dumps(stored))
    text = "\n".join(battery_page.section())
    assert "| 300 rows | 2 | 86.9 / 88.5 / 90.0 | 99.0 / 99.0 / 99.0 | +1.9 |" in text
    assert "2 of 3 fits are outside of the goals:" in text
    assert f"| B | {loud.noise} | {loud.r2:g} | 300 | {loud.n_features} | 86.9 for 90 % |" in text
    assert "loo_score_ 0.0300 above the truth, 3.0 standard errors |" in text
    about = "| noise along a rotated direction | 2,000"
    assert f"{about} | loud half | 85 to 95 | not run | **82.0** (80.0 to 84.0) |" in text
    assert f"{about} | quiet half | 85 to 95 | not run | 92.0 (90.0 to 94.0) |" in text
