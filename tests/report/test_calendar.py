"""Parts of times: one is moved, the others stay; effects of each by a made-up function."""

import numpy as np
import pandas as pd
import pytest

from report_problems import fit_quietly
from triegp.encoding.tables import ReadTable
from triegp.report.calendar import PARTS, Calendar, move_part, read_calendar, read_part
from triegp.report.effects import axes_of
from triegp.report.facts import gather

START = 14_975.0  # 2011-01-01
TWO_YEARS = Calendar(PARTS, START, START + 730.0 + 23.0 / 24.0, START + 365.0)


def make_hours(n=500, seed=0):
    return START + np.random.default_rng(seed).integers(0, 731 * 24, n) / 24.0


def distance_in_year(a, b):
    """Days between days of the year, around the end of the year, too."""
    apart = np.abs(a - b)
    return np.minimum(apart, 365.2425 - apart)


@pytest.mark.parametrize("part", PARTS)
def test_other_parts_stay(part):
    times = make_hours()
    values = read_part(make_hours(seed=1), part)
    moved = move_part(times, part, values, TWO_YEARS)
    assert moved.min() >= TWO_YEARS.low
    assert moved.max() <= TWO_YEARS.high
    for other in ("weekday", "hour"):
        expected = values if other == part else read_part(times, other)
        np.testing.assert_allclose(read_part(moved, other), expected, atol=1e-6)
    season = read_part(moved, "season")
    if part == "season":  # the nearest day with that day of the week
        assert distance_in_year(season, values).max() <= 4.0
    else:
        assert distance_in_year(season, read_part(times, "season")).max() < 7.0
    if part == "trend":  # none of the same season is nearer
        for other in (moved - 364.0, moved + 364.0):
            inside = (other >= TWO_YEARS.low) & (other <= TWO_YEARS.high)
            assert inside.any()
            assert np.all((np.abs(other - values) > np.abs(moved - values) - 1e-6)[inside])


@pytest.mark.parametrize("day", [0.0, 91.0, 182.0, 273.0, 360.0])
def test_the_season_does_not_move_rows_along_the_trend(day):
    times = START + np.random.default_rng(2).uniform(0.0, 6 * 365.0, 4_000)
    years = Calendar(PARTS, times.min(), times.max(), float(np.median(times)))
    moved = move_part(times, "season", np.full(times.size, day), years)
    assert abs(np.mean(moved - times)) < 30.0  # of 182 if rows stayed in their years


def test_missing_times_are_the_median():
    moved = move_part(np.array([np.nan]), "hour", np.array([5.0]), TWO_YEARS)
    np.testing.assert_allclose(moved, START + 365.0 + 5.0 / 24.0)


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        (pd.date_range("2024-01-01", periods=200, freq="h"), ("trend", "hour")),
        (pd.date_range("2024-01-01", periods=600, freq="h"), ("trend", "weekday", "hour")),
        (pd.date_range("2024-01-01", periods=90, freq="D"), ("trend", "weekday")),
        (pd.date_range("2024-01-01", periods=10, freq="D"), ("trend",)),
        (pd.date_range("2020-01-06", periods=250, freq="7D"), ("trend", "season")),
        (pd.date_range("2020-01-01", periods=36, freq="MS"), ("trend", "season")),
    ],
)
def test_parts_are_those_that_span_and_resolution_allow(times, parts):
    model = fit_quietly(pd.DataFrame({"when": times}), np.arange(len(times)) % 7.0)
    days = model.rows_.features[:, 0]
    assert read_calendar(model, 0, days).parts == parts
    axes = axes_of(model, ReadTable(model.rows_.features, model.columns_), 0)
    assert len(axes) == len(parts)
    assert axes[0].label == ("when: trend" if len(parts) > 1 else "when")


def test_effects_of_times_are_those_of_their_parts():
    rng = np.random.default_rng(0)
    days = make_hours(2_000)
    when = pd.Timestamp("1970-01-01") + pd.to_timedelta(np.round(days * 24), "h")
    when = pd.Series(when).mask(rng.random(2_000) < 0.02)
    y = 10.0 * (read_part(days, "hour") > 11.5) + 4.0 * (read_part(days, "weekday") > 4.5)
    y += rng.standard_normal(2_000)
    model = fit_quietly(pd.DataFrame({"when": when}), y, n_members=4, max_iter=30)
    target = gather(model).targets[0]
    trend, season, weekday, hour = target.effects
    assert [effect.axis.values.size for effect in target.effects] == [20, 20, 7, 24]
    assert np.mean(hour.mean[12:]) - np.mean(hour.mean[:12]) == pytest.approx(10.0, abs=1.5)
    assert np.mean(weekday.mean[5:]) - np.mean(weekday.mean[:5]) == pytest.approx(4.0, abs=1.5)
    assert np.ptp(trend.mean) < 1.5
    assert np.ptp(season.mean) < 2.5
    assert weekday.axis.ticks == ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    assert hour.axis.ticks[13] == "13:00"
    assert target.pair is None  # parts of one feature are no pair
