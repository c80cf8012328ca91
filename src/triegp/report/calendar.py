"""Parts of a column of times: trend, season, day of the week and hour, one moved at a time.

A time that is simply set to another one changes all parts at once, so that its effect would be the
rhythm of days and weeks, sampled by chance. Here a part is set to a value and the others stay: the
trend moves times by whole weeks, or by 52 of them if there is a season.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PARTS = ("trend", "season", "weekday", "hour")
WEEK, YEAR = 7.0, 365.2425  # days
WEEKS_OF_YEAR = 364.0  # days of the whole weeks that are nearest to a year
LEAST_YEARS = 1.9  # that times must span for a season apart from the trend
MICROSECONDS = 86_400e6  # of a day; times are whole ones


@dataclass(frozen=True)
class Calendar:
    """What there is to tell apart in a column of times.

    Attributes
    ----------
    parts : tuple of str
        Those of PARTS that the span and the resolution of the column allow.
    low, high : float
        Earliest and latest training time, days since 1970; none is moved beyond them.
    median : float
        Time that is moved in place of a missing one.
    """

    parts: tuple[str, ...]
    low: float
    high: float
    median: float


def read_calendar(model: Any, j: int, times: Floats) -> Calendar:
    """The parts of column j, of which these times are not missing."""
    roles = np.array(model.layout_.roles)
    parts = model.layout_.source == j
    encoder, at = model.encoders_[0], int(np.flatnonzero(parts & (roles == "value"))[0])
    low, high = float(encoder.low_[at]), float(encoder.high_[at])
    finest = float(np.diff(np.unique(times)).min(initial=np.inf))
    allowed = {
        "trend": True,
        "season": high - low >= LEAST_YEARS * YEAR and finest < YEAR,
        "weekday": "weekday" in roles[parts] and finest < WEEK,
        "hour": "hour" in roles[parts] and finest < 1.0,
    }
    return Calendar(
        tuple(part for part in PARTS if allowed[part]), low, high, float(np.median(times))
    )


def read_part(times: Floats, part: str) -> Floats:
    """A part of times: days since 1970, day of the year, day of the week (Monday is 0), hour."""
    days = np.floor(times)
    if part == "season":
        return times - _new_year(times)
    if part == "weekday":
        return (days + 3.0) % WEEK
    return 24.0 * (times - days) if part == "hour" else times


def move_part(times: Floats, part: str, values: Floats, calendar: Calendar) -> Floats:
    """Times (n,) with a part set to values (n,), the others as they are, within the calendar.

    The season moves to the nearest such day, at most half a year away, so that the trend cancels
    out over the rows, but for those near the ends; by whole weeks if there are days of the week.
    """
    times = np.where(np.isnan(times), calendar.median, times)
    days = np.floor(times)
    week = WEEK if "weekday" in calendar.parts else 1.0 if "hour" in calendar.parts else 0.0
    if part == "weekday":
        moved = _bring_inside(times - (days + 3.0) % WEEK + values, WEEK, calendar)
    elif part == "hour":
        moved = _bring_inside(days + values / 24.0, week, calendar)
    elif part == "season":
        target = _new_year(times) + values
        target = target + YEAR * np.round((times - target) / YEAR)
        moved = _move_by(times, _bring_inside(target, YEAR, calendar), week, calendar)
    else:
        step = WEEKS_OF_YEAR if "season" in calendar.parts else week
        moved = _move_by(times, values, step, calendar)
    return np.round(moved * MICROSECONDS) / MICROSECONDS


def _bring_inside(times: Floats, step: float, calendar: Calendar) -> Floats:
    """Times beyond the calendar, a step back or forth."""
    times = np.where(times > calendar.high, times - step, times)
    return np.where(times < calendar.low, times + step, times)


def _move_by(times: Floats, target: Floats, step: float, calendar: Calendar) -> Floats:
    """Times moved by whole steps as near to the target as the calendar allows; 0: any distance."""
    if step == 0.0:
        return target
    first, last = np.ceil((calendar.low - times) / step), np.floor((calendar.high - times) / step)
    return times + step * np.clip(np.round((target - times) / step), first, last)


def _new_year(times: Floats) -> Floats:
    """Beginning of the year of each time, in days since 1970."""
    years = np.floor(times).astype("datetime64[D]").astype("datetime64[Y]")
    return years.astype("datetime64[D]").astype(np.float64)
