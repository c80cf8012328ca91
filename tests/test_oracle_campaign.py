"""Some hundred random cases against dense algebra; `make fuzz` runs 100,000 with new seeds."""

from dataclasses import replace

import numpy as np
import pytest
from tools.oracle_fuzz import run

import forest_problems
import oracle_campaign
import oracle_cases
import oracle_models
import oracle_reference
from forest_problems import own_kernel
from oracle_campaign import KINDS, Tally
from oracle_cases import check_case, check_products, draw_case, draw_single
from oracle_models import check_model, draw_model
from tolerances import HUNDRED_ROUNDINGS
from triegp.additive import exact_gradient
from triegp.tree import build_trie


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_cases(first):
    tally = Tally()
    failures = {seed: tally.add(seed) for seed in range(first, first + 100)}
    assert not any(failures.values()), {seed: lines for seed, lines in failures.items() if lines}


@pytest.mark.parametrize(
    ("kind", "n_cases"), [("float32", 60), ("forest", 60), ("model", 40), ("smooth", 60)]
)
def test_random_cases_of_a_kind(kind, n_cases):
    _, draw, check = KINDS[kind]
    for seed in range(n_cases):
        for quantity, _, error, limit in check(draw(seed)):
            assert error <= limit, (quantity, seed)


def test_seeds_cover_what_they_should():
    cases = [draw_case(seed) for seed in range(400)]
    assert {case.engine for case in cases} == set(oracle_cases.ENGINES)
    assert {case.order.nugget for case in cases} == {"row", "bit"}
    assert min(case.noise for case in cases) < 1e-290
    assert max(case.order.n_bits for case in cases) > 250
    assert min(case.order.n_bits for case in cases) == 1
    assert max(case.n for case in cases) > 100
    assert min(case.n for case in cases) == 1
    assert any(case.sample_weight is not None and (case.sample_weight % 1).any() for case in cases)
    assert all(draw_case(seed).y.tobytes() == cases[seed].y.tobytes() for seed in range(5))


@pytest.mark.parametrize("exact", [True, False])
def test_a_model_that_differs_a_little_fails(exact, monkeypatch):
    """Noise, targets and levels that are off by 1e-10 of themselves are found out.

    Against float64 only if the condition number is small; then decimal numbers decide.
    """
    off = 1.0 + 1e-10

    class Other(oracle_reference.Reference):
        def __init__(self, case, exact):
            order = replace(case.order, remaining=case.order.remaining * off)
            noise = case.noise * off**2
            super().__init__(replace(case, order=order, noise=noise, y=case.y * off), exact)

    monkeypatch.setattr(oracle_cases, "Reference", Other)
    failed, passed = set(), set()
    for seed in range(300):
        case = draw_case(seed)
        if case.exact != exact or not 3 <= case.n <= 12:
            continue
        found = {name: error > limit for name, _, error, limit in check_case(case)}
        failed |= {name for name, fails in found.items() if fails}
        passed |= {name for name, fails in found.items() if not fails}
    same = {name for name in passed if name.endswith(("same bits", "overflow"))}
    untouched = {"product", "level products"}
    assert passed - failed <= same | untouched
    assert len(failed) > 20  # there were cases, of most quantities


def test_float32_messages_that_are_rounded_more_fail(monkeypatch):
    """Targets that are off by 1e-4 of themselves, and noise as much, are found out."""

    class Other(oracle_reference.Reference):
        def __init__(self, case, exact):
            off = replace(case, noise=case.noise * (1 + 1e-4), y=case.y * (1 + 1e-4))
            super().__init__(off, exact)

    monkeypatch.setattr(oracle_cases, "Reference", Other)
    failed = set()
    for case in map(draw_single, range(150)):
        if case.exact:
            failed |= {name for name, _, error, limit in check_case(case) if error > limit}
    expected = {"likelihood", "gradient by target", "posterior mean", "posterior variance"}
    expected |= {"leave-one-out mean", "mean apart", "samples: covariance", "function draws"}
    assert {f"float32: {name}" for name in expected} <= failed


def test_a_sum_of_another_kernel_fails(monkeypatch):
    def other(found, A, B):
        return own_kernel(found, A, B) * (1 + 1e-5)

    monkeypatch.setattr(oracle_models, "own_kernel", other)
    monkeypatch.setattr(forest_problems, "own_kernel", other)
    failed, passed = set(), set()
    for case in map(draw_model, range(40)):
        for name, _, error, limit in check_model(case):
            (failed if error > limit else passed).add(name)
    assert {name for name in passed - failed if "gradient" not in name} == {"sum: nll"}


@pytest.mark.parametrize("name", ["phi", "log_scale", "noise", "log_lengthscale", "log_smooth"])
def test_a_gradient_of_a_sum_that_differs_fails(name, monkeypatch):
    def gradient(*given):
        nll, found = exact_gradient(*given)
        value = getattr(found, name)
        if value is not None:
            value = tuple(1.001 * part for part in value) if name == "phi" else 1.001 * value
        return nll, replace(found, **{name: value})

    monkeypatch.setattr(oracle_models, "exact_gradient", gradient)
    failed = set()
    for case in map(draw_model, range(12)):
        found = oracle_models.check_gradient(case)
        failed |= {quantity for quantity, _, error, limit in found if error > limit}
    assert len(failed) == 1


def test_decimal_numbers_decide_where_float64_is_not_enough():
    case = draw_case(329885991)  # the large target is that of the row that counts least
    assert not case.exact
    assert any(error > HUNDRED_ROUNDINGS for _, _, error in oracle_cases.compute_errors(case))
    assert all(error <= limit for _, _, error, limit in check_case(draw_case(case.seed)))


def test_products_of_other_keys_fail():
    failed = set()
    for case in map(draw_case, range(40)):
        trie = build_trie(case.codes, case.order)
        reference = oracle_reference.Reference(case, case.exact)
        reference.lcp = np.maximum(reference.lcp - 1, 0)
        errors = check_products(case, trie, reference)
        failed |= {name for name, error in errors if error > HUNDRED_ROUNDINGS}
    assert failed == {"product", "level products"}


def test_a_failure_ends_the_campaign_with_its_command(capsys, monkeypatch):
    def check(case):
        yield "mean", "float64", 0.5 if case.seed == 12 else 0.0, 0.1

    def draw(seed):
        if seed == 30:
            raise ValueError("no such case")
        return draw_case(seed), check

    monkeypatch.setattr(oracle_campaign, "draw", draw)
    assert run(Tally(), 10, 5) == 1
    out = capsys.readouterr().out
    assert "mean: 0.5 > 0.1 (" in out
    assert "python tools/oracle_fuzz.py --seed 12 --cases 1\n" in out
    assert run(Tally(), 30, 1) == 1
    assert "ValueError: no such case" in capsys.readouterr().out
    assert run(Tally(), 13, 10**6, seconds=0.0) == 0
    assert "oracle: no failure in 1 cases" in capsys.readouterr().out
    assert run(Tally(), 13, 4) == 0
    out = capsys.readouterr().out
    assert "oracle: seeds 13 to 16" in out
    assert "| mean | float64 | 4 | 0.0e+00 | 1e-01 | 13 |" in out
