"""Coverage of intervals on data of known noise; the cases are those of docs/calibration.md.

There are fewer rows, seeds and observations here. A mean coverage over the seeds may be off by
ALLOWED points and by BINOMIAL_ERRORS standard errors of the share of so many independent
observations at its nominal value: for 1,000 observations that is 4.7 points for 50 %, 2.8 for 90 %
and 0.9 for 99 %.
"""

import numpy as np
import pytest

from bench import calibration
from bench import calibration_cases as cases

ALLOWED = 5.0  # points
BINOMIAL_ERRORS = 3.0
OBSERVATIONS = 1_000  # per seed
FEW_ROWS = 100
SEEDS_OF_FEW_ROWS = 3  # one draw of so few rows says little about the noise
SEEDS_OF_SHIFTS = 2  # errors of the function far from the rows are one draw per fit
CASES = (
    cases.normal(30),
    cases.normal(100),
    cases.normal(300),
    cases.heteroscedastic(800),
    cases.switched(800),
    cases.student(400),
    cases.discrete(400),
    cases.noise_alone(300),
    cases.twins(200),
    cases.near_twins(150),
    cases.of_weight(300, 2.0),
    cases.of_weight(300, 5.0),
    cases.of_random_weight(300),
    cases.replicates(160),
    cases.shift_to_sparse_part(400),
    cases.outside(200, 1.05),
    cases.outside(200, 2.0),
    cases.stream(1, 400),
    cases.stream(10, 400),
    cases.stream(100, 400),
    cases.stream_after_equal_targets(20, 400),
    cases.stream_from_outside(150, 400),
)
# What does not hold yet, with the coverage that was measured.
FAILING = {
    "normal-30 B": "new 50 %: 36.7, 90 %: 75.7; training 50 %: 1.6, 90 %: 9.9, 99 %: 23.0",
    "normal-100 B": "new 50 %: 38.6, 90 %: 77.0; training 50 %: 2.9, 90 %: 27.2, 99 %: 47.3",
    "normal-300 B": "training 50 %: 1.4, 90 %: 15.0, 99 %: 33.3",
    "heteroscedastic-800 B": (
        "training 50 %: 19.1, 90 %: 78.8; noise 0.07 50 %: 88.2, 90 %: 100.0; "
        "noise 0.17 90 %: 99.1; noise 0.37 50 %: 31.3; noise 0.47 50 %: 24.7, 90 %: 68.5"
    ),
    "switched-800 B": (
        "training 50 %: 38.5, 90 %: 78.9; noise 0.05 50 %: 91.8, 90 %: 100.0; "
        "noise 1.00 50 %: 23.7, 90 %: 72.2"
    ),
    "student-400 B": "training 50 %: 11.0, 90 %: 52.0",
    "discrete-400 B": "training 50 %: 40.0, 90 %: 40.0, 99 %: 40.0",
    "no-signal-300 B": "training 50 %: 13.2, 90 %: 39.5, 99 %: 67.4",
    "twins-200 B": (
        "new 50 %: 18.0, 90 %: 42.1, 99 %: 62.3; training 50 %: 0.1, 90 %: 0.2, 99 %: 0.5"
    ),
    "near-twins-150 B": (
        "new 50 %: 18.3, 90 %: 40.3, 99 %: 67.7; training 50 %: 0.1, 90 %: 0.3, 99 %: 0.4"
    ),
    "weight-2-300 B": (
        "new 50 %: 27.2, 90 %: 59.6, 99 %: 78.4; training 50 %: 0.0, 90 %: 0.1, 99 %: 0.5"
    ),
    "weight-5-300 B": (
        "new 50 %: 29.6, 90 %: 64.8, 99 %: 82.7; training 50 %: 0.0, 90 %: 0.0, 99 %: 0.2"
    ),
    "weight-random-300 B": (
        "new 50 %: 17.7, 90 %: 41.8, 99 %: 62.1; training 50 %: 0.2, 90 %: 0.2, 99 %: 0.5"
    ),
    "shift-sparse-400 B": "new 50 %: 40.5; training 50 %: 4.8, 90 %: 20.3, 99 %: 39.5",
    "outside-1.05 B": (
        "new 50 %: 12.7, 90 %: 39.9, 99 %: 70.0; training 50 %: 9.8, 90 %: 33.0, 99 %: 60.2"
    ),
    "outside-2 B": (
        "new 50 %: 0.0, 90 %: 0.0, 99 %: 0.0; training 50 %: 9.8, 90 %: 33.0, 99 %: 60.2"
    ),
    "stream-1 B": "new 50 %: 0.2, 90 %: 0.3, 99 %: 0.6; training 50 %: 0.2, 90 %: 0.6, 99 %: 0.6",
    "stream-10 B": (
        "new 50 %: 7.3, 90 %: 44.8, 99 %: 86.3; training 50 %: 1.7, 90 %: 40.8, 99 %: 84.2"
    ),
    "stream-100 B": "new 90 %: 73.8, 99 %: 89.0; training 50 %: 0.7, 90 %: 10.0, 99 %: 21.8",
    "stream-constant B": (
        "new 50 %: 7.0, 90 %: 11.5, 99 %: 12.1; training 50 %: 5.5, 90 %: 10.2, 99 %: 11.3"
    ),
    "stream-outside B": (
        "new 50 %: 29.0, 90 %: 58.0, 99 %: 75.6; training 50 %: 4.9, 90 %: 14.8, 99 %: 25.0"
    ),
    "normal-30 F": (
        "new 50 %: 24.7, 90 %: 53.1, 99 %: 73.7; training 50 %: 7.8, 90 %: 18.6, 99 %: 30.1"
    ),
    "normal-100 F": (
        "new 50 %: 26.3, 90 %: 61.1, 99 %: 82.1; training 50 %: 11.9, 90 %: 32.9, 99 %: 50.9"
    ),
    "heteroscedastic-800 F": (
        "noise 0.07 50 %: 89.7, 90 %: 100.0; noise 0.17 50 %: 62.0, 90 %: 99.2; "
        "noise 0.27 50 %: 38.8; noise 0.37 50 %: 28.9; noise 0.47 50 %: 22.6, 90 %: 72.6"
    ),
    "switched-800 F": "noise 0.05 50 %: 87.5, 90 %: 100.0; noise 1.00 50 %: 11.1, 90 %: 75.9",
    "twins-200 F": "new 50 %: 2.0, 90 %: 5.2, 99 %: 9.4; training 50 %: 0.1, 90 %: 0.6, 99 %: 0.8",
    "near-twins-150 F": (
        "new 50 %: 1.5, 90 %: 3.1, 99 %: 6.4; training 50 %: 0.1, 90 %: 0.2, 99 %: 0.4"
    ),
    "weight-2-300 F": (
        "new 50 %: 1.4, 90 %: 4.5, 99 %: 8.1; training 50 %: 0.1, 90 %: 0.4, 99 %: 0.9"
    ),
    "weight-5-300 F": (
        "new 50 %: 0.4, 90 %: 1.7, 99 %: 2.7; training 50 %: 0.0, 90 %: 0.0, 99 %: 0.0"
    ),
    "weight-random-300 F": (
        "new 50 %: 0.7, 90 %: 3.2, 99 %: 75.1; training 50 %: 0.0, 90 %: 0.2, 99 %: 7.8"
    ),
    "shift-sparse-400 F": "new 50 %: 37.6, 90 %: 79.4",
    "outside-1.05 F": "new 50 %: 35.6, 90 %: 79.7",
    "outside-2 F": "new 50 %: 0.0, 90 %: 0.0, 99 %: 0.0",
    "stream-1 F": "new 50 %: 1.9, 90 %: 4.3, 99 %: 7.8; training 50 %: 2.1, 90 %: 3.6, 99 %: 6.6",
    "stream-10 F": (
        "new 50 %: 6.5, 90 %: 18.1, 99 %: 47.4; training 50 %: 6.2, 90 %: 15.4, 99 %: 38.6"
    ),
    "stream-100 F": (
        "new 50 %: 32.1, 90 %: 65.0, 99 %: 85.6; training 50 %: 23.9, 90 %: 57.2, 99 %: 79.3"
    ),
    "stream-constant F": (
        "new 50 %: 0.0, 90 %: 0.1, 99 %: 4.7; training 50 %: 0.1, 90 %: 0.1, 99 %: 6.8"
    ),
    "stream-outside F": "new 50 %: 39.5, 90 %: 78.5; training 50 %: 36.1, 90 %: 76.8",
}


def n_seeds(case):
    if case.n_rows <= FEW_ROWS:
        return SEEDS_OF_FEW_ROWS
    return SEEDS_OF_SHIFTS if case.group == cases.ELSEWHERE else 1


def tolerance(level, n_observations):
    """Points by which a coverage may be off."""
    p = level / 100
    return ALLOWED + BINOMIAL_ERRORS * 100 * np.sqrt(p * (1 - p) / n_observations)


def problems(case, estimator):
    """Coverages that are off, as text."""
    seeds = range(n_seeds(case))
    found = [calibration.measure(case, estimator, seed, OBSERVATIONS) for seed in seeds]
    places = [(place, [part[place] for part in found]) for place in ("new", "training")]
    for group in zip(*(part["by_noise"] for part in found), strict=True):
        places.append((f"noise {group[0]['deviation']:.2f}", group))
    out = []
    for place, parts in places:
        one_sided = case.at_least and place == "new"
        off = {
            level: value
            for level, value in calibration.mean_coverage(parts).items()
            if value - level < -tolerance(level, OBSERVATIONS * len(parts))
            or (value - level > tolerance(level, OBSERVATIONS * len(parts)) and not one_sided)
        }
        if off:
            out.append(place + " " + ", ".join(f"{c} %: {value:.1f}" for c, value in off.items()))
    return out


def parameters():
    for case in CASES:
        for estimator in calibration.ESTIMATORS:
            name = f"{case.name} {estimator}"
            reason = FAILING.get(name)
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            yield pytest.param(case, estimator, id=name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize(("case", "estimator"), list(parameters()))
def test_intervals_contain_what_they_promise(case, estimator):
    assert problems(case, estimator) == []


def test_every_kind_of_case_of_the_page_is_here():
    assert {case.group for case in CASES} == {case.group for case in cases.CASES}


def test_the_list_of_failing_cases_names_cases():
    names = {f"{case.name} {e}" for case in CASES for e in calibration.ESTIMATORS}
    assert set(FAILING) <= names
