"""Threads and processes: a short run of `make break-runs`."""

import os

import numpy as np
import pytest
from tools.break_runs import (
    KINDS,
    BrokenError,
    Changes,
    Watched,
    campaign,
    check_same_bits,
)
from tools.run_problems import draw_problem

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
CASES = {65: "readers", 42: "writers", 150: "writers", 143: "forks"}  # small ones
quiet = pytest.mark.filterwarnings("ignore")


@quiet
@pytest.mark.parametrize("seed", [14, 36])
def test_a_fit_has_the_same_bits_in_threads_and_processes(seed):
    names = ["n_jobs", "threads", "fork", "BLAS by limit"]
    check_same_bits(np.random.default_rng(seed), names)


def test_threads_and_forks_break_nothing():
    found = campaign(seed=5, cases=list(CASES))
    assert [one["failure"] for one in found] == [""] * len(CASES)
    assert [one["kind"] for one in found] == list(CASES.values())
    assert set(KINDS) == {"same bits", *CASES.values()}


@quiet
def test_an_answer_between_two_states_is_found():
    """A model that is half changed: the campaign would not be worth much otherwise."""
    draw = np.random.default_rng(1)
    watched = Watched(Changes(draw_problem(draw, streamed=True), draw))
    before, after = (watched.sequence.legal[k]["mean"][0] for k in (0, 1))
    assert watched.check("mean", [before], range(2), "") == 0
    assert watched.check("mean", [after], range(2), "") == 1
    mixed = before.copy()
    mixed[::2] = after[::2]
    for said, states in ((mixed, range(2)), (before, range(1, 2))):
        with pytest.raises(BrokenError, match="mean"):
            watched.check("mean", [said], states, "")


@quiet
def test_a_reader_that_goes_back_in_time_is_found():
    draw = np.random.default_rng(1)
    watched = Watched(Changes(draw_problem(draw, streamed=True), draw))
    watched.begun = watched.done = 1  # the model still is in its first state
    watched.ended.set()
    with pytest.raises(BrokenError, match="1 done"):
        watched.read(np.random.default_rng(0))
