"""Each rule of advice, with evidence for it and without."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from report_problems import make_evaluation, make_facts, make_target
from triegp.report import figures
from triegp.report.advise import advise
from triegp.report.effects import Importance
from triegp.report.outliers import RowFacts
from triegp.report.regions import FeatureRegions, Region

RNG = np.random.default_rng(0)
N = 1_000
MEAN = 3.0 * RNG.standard_normal(N)
NOISE = RNG.standard_normal(N)
GOOD = make_evaluation(MEAN + NOISE, MEAN, 1.0)


def rules(*targets, **options):
    return {one.rule for one in advise(make_facts(*targets, **options))}


def importance(j, share):
    return Importance(j, f"x{j}", share, 0.0, (share,))


def region(coverage, n_rows):
    return Region("1 to 2", n_rows, float(n_rows), 3.3, 0.8, coverage, coverage, coverage)


def outlier(row):
    return RowFacts(row, 1.0, 0.0, -1.0, 1.0, 9.0, 1e-15, ())


def test_nothing_is_said_of_a_good_model():
    test = make_evaluation(MEAN + NOISE[::-1], MEAN, 1.0, "test set")
    target = make_target(GOOD, test, importances=(importance(0, 0.9), importance(1, 0.1)))
    assert rules(target, outside=(N, 3, 4.0)) == set()


@pytest.mark.parametrize(
    ("rule", "found", "not_found"),
    [
        ("diverged", {"diverged": True}, {}),
        ("stopped", {"stopped_early": True}, {}),
        ("few rows", {"n_rows": 199}, {"n_rows": 200}),
        ("copies", {"n_copies": 10}, {"n_copies": 9}),
        ("constant", {"constant": ("x1",)}, {}),
        ("outside", {"outside": (N, 40, 4.0)}, {"outside": (N, 9, 4.0)}),
    ],
)
def test_rules_about_the_fit(rule, found, not_found):
    assert rules(make_target(GOOD), **found) == {rule}
    assert rules(make_target(GOOD), **not_found) == set()


def test_one_copy_in_a_tiny_table_is_not_worth_a_word():
    assert "copies" not in rules(make_target(GOOD), n_rows=50, n_copies=1)
    assert "copies" in rules(make_target(GOOD), n_rows=50, n_copies=2)


def test_features_that_do_nothing_are_named():
    idle = make_target(GOOD, importances=(importance(0, 0.999), importance(1, 0.001)))
    (advice,) = advise(make_facts(idle))
    assert advice.rule == "idle"
    assert "x1" in advice.reason
    assert "x0" not in advice.reason
    assert not advice.serious
    busy = make_target(GOOD, importances=(importance(0, 0.99), importance(1, 0.01)))
    assert rules(busy) == set()


def test_a_constant_target_and_targets_of_few_values():
    assert "constant target" in rules(make_target(make_evaluation(np.full(N, 7.0), 7.0, 0.1)))
    few = make_evaluation(np.round(NOISE).clip(-2, 2), np.round(NOISE).clip(-2, 2) * 0.99, 0.3)
    assert "few values" in rules(make_target(few))
    assert "few values" not in rules(make_target(GOOD))


def test_features_that_explain_nothing():
    assert "no signal" in rules(make_target(make_evaluation(NOISE, 0.0, 1.0)))
    weak = make_evaluation(0.5 * MEAN + NOISE, 0.5 * MEAN, 1.0)
    assert "no signal" not in rules(make_target(weak))


def test_skewed_errors():
    skewed = make_evaluation(MEAN + np.exp(NOISE), MEAN + np.exp(0.5), 2.0)
    assert "skewed" in rules(make_target(skewed))
    assert "skewed" not in rules(make_target(skewed), transform="log")
    assert "skewed" not in rules(make_target(GOOD))


def test_errors_that_grow_with_a_positive_target():
    mean = np.exp(MEAN / 3)
    y = mean * (1 + 0.2 * NOISE.clip(-3, 3))
    assert "skewed" in rules(make_target(make_evaluation(y, mean, 0.2 * mean)))
    assert "skewed" not in rules(make_target(make_evaluation(y - 5, mean - 5, 0.2 * mean)))


def test_outliers_and_long_tails():
    some = make_target(GOOD, outliers=tuple(map(outlier, range(3))), n_outliers=3)
    (advice,) = advise(make_facts(some))
    assert advice.rule == "outliers"
    assert "0, 1, 2" in advice.reason
    one = make_target(GOOD, outliers=(outlier(7),), n_outliers=1)
    assert advise(make_facts(one))[0].title == "One row looks like an outlier"
    many = make_target(GOOD, outliers=tuple(map(outlier, range(10))), n_outliers=11)
    assert rules(many) == {"long tails"}


@pytest.mark.parametrize(("std", "rule"), [(0.7, "narrow"), (1.4, "wide")])
def test_intervals_that_are_off_overall(std, rule):
    for source in ("leave-one-out", "test set"):
        off = make_evaluation(MEAN + NOISE, MEAN, std, source)
        target = make_target(off) if source == "leave-one-out" else make_target(GOOD, off)
        found = [one for one in advise(make_facts(target)) if one.rule == rule]
        assert len(found) == 1
        assert source in found[0].title
        assert found[0].serious


def test_noise_with_two_peaks_has_another_shape():
    inside = 2.0 * ndtr(np.abs(NOISE)) - 1.0
    moved = np.where(inside < 0.6, 0.6 * np.sqrt(inside / 0.6), inside)  # away from the middle
    peaks = np.sign(NOISE) * ndtri(0.5 + 0.5 * moved)
    assert rules(make_target(make_evaluation(MEAN + peaks, MEAN, 1.0))) == {"shape"}
    assert "shape" not in rules(make_target(GOOD))


def test_features_are_idle_relative_to_their_number():
    many = tuple(importance(j, 1 / 400) for j in range(400))
    assert rules(make_target(GOOD, importances=many)) == set()


def test_few_rows_do_not_prove_intervals_wrong():
    few = make_evaluation((MEAN + NOISE)[:20], MEAN[:20], 0.8)
    assert not rules(make_target(few)) & {"narrow", "wide"}


@pytest.mark.parametrize("seed", range(8))
def test_calibrated_models_with_weights_get_no_advice_about_intervals(seed):
    rng = np.random.default_rng(seed)
    weight = rng.lognormal(sigma=1.5, size=N)
    weighted = make_evaluation(MEAN + rng.standard_normal(N), MEAN, 1.0, weight=weight)
    assert weighted.scores.n_effective < N / 3
    assert rules(make_target(weighted)) == set()
    narrow = make_evaluation(MEAN + rng.standard_normal(N), MEAN, 0.5, weight=weight)
    assert rules(make_target(narrow)) == {"narrow"}


def test_bands_of_figures_hold_what_weights_leave_to_chance(monkeypatch):
    monkeypatch.setattr(figures, "draw_svg", lambda draw, **_: draw)
    rng = np.random.default_rng(0)
    weight = rng.lognormal(sigma=1.0, size=N)
    weighted = make_evaluation(MEAN + NOISE, MEAN, 1.0, weight=weight)
    curve = figures.calibration_figure(weighted, "a").__self__
    bars = figures.pit_figure(weighted, "b").__self__
    share = weight / weight.sum()
    shares = np.array([share @ (rng.random((N, 2)) < [0.5, 0.05]) for _ in range(1_000)])
    middle = curve.nominal.tolist().index(0.5)
    for low, high, found in (
        (curve.low[middle], curve.high[middle], shares[:, 0]),
        (bars.low / 20, bars.high / 20, shares[:, 1]),
    ):
        assert 0.92 < np.mean((low <= found) & (found <= high)) < 0.98


def test_intervals_that_are_off_in_a_region():
    bad = FeatureRegions("x1", 0.5, (region(0.9, 400), region(0.6, 100)))
    (advice,) = advise(make_facts(make_target(GOOD, regions=(bad,))))
    assert advice.rule == "narrow region"
    assert "x1" in advice.reason
    assert "60.0" in advice.reason
    wide = FeatureRegions("x1", 0.5, (region(0.9, 400), region(1.0, 200)))
    assert rules(make_target(GOOD, regions=(wide,))) == {"wide region"}
    chance = FeatureRegions("x1", 0.5, (region(0.9, 400), region(0.75, 20)))
    assert rules(make_target(GOOD, regions=(chance,))) == set()


def test_intervals_that_are_right_on_average_only():
    std = np.where(np.arange(N) % 2, 0.75, 1.35)
    assert rules(make_target(make_evaluation(MEAN + NOISE, MEAN, std))) == {"narrow region"}


def test_drift():
    shifted = make_evaluation(MEAN + NOISE + 2.0, MEAN, 1.0, "test set")
    assert "drift" in rules(make_target(GOOD, shifted))
    alike = make_evaluation(MEAN + NOISE[::-1], MEAN, 1.0, "test set")
    assert "drift" not in rules(make_target(GOOD, alike))


def test_serious_advice_comes_first_and_targets_are_named_if_there_are_several():
    one = make_target(GOOD, importances=(importance(0, 0.999), importance(1, 0.001)))
    other = replace(make_target(make_evaluation(MEAN + NOISE, MEAN, 0.5)), name="z")
    found = advise(make_facts(one, other))
    assert [advice.serious for advice in found] == [True, False]
    assert [advice.target for advice in found] == ["z", "y"]
    assert all(advice.reason and advice.action for advice in found)
