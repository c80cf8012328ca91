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
    "normal-30 B": "new 50 %: 59.3",
    "normal-100 F": "training 50 %: 38.6, 90 %: 80.4",
    "heteroscedastic-800 B": "noise 0.07 50 %: 60.1",
    "switched-800 B": "noise 0.05 50 %: 65.9, 90 %: 98.5",
    "outside-1.05 B": "training 50 %: 41.3",
    "outside-2 B": "training 50 %: 41.3",
    "shift-sparse-400 B": "new 50 %: 63.1",
    "shift-sparse-400 F": "new 50 %: 61.9",
    "stream-1 B": "training 90 %: 82.0",
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


@pytest.mark.filterwarnings("ignore:.*copies of others", "ignore:.*outside the training box")
@pytest.mark.parametrize(("case", "estimator"), list(parameters()))
def test_intervals_contain_what_they_promise(case, estimator):
    assert problems(case, estimator) == []


def test_every_kind_of_case_of_the_page_is_here():
    assert {case.group for case in CASES} == {case.group for case in cases.CASES}


def test_the_list_of_failing_cases_names_cases():
    names = {f"{case.name} {e}" for case in CASES for e in calibration.ESTIMATORS}
    assert set(FAILING) <= names
