"""What of a mixture fits into a time budget."""

from dataclasses import replace

from triegp.mixture.candidates import plan_ensemble
from triegp.mixture.learning import turn_seconds
from triegp.mixture.settings import settings_of


def test_a_mixture_is_thinned_to_the_time_left():
    settings = settings_of("default", {})
    assert plan_ensemble(1e6, 0.01, 2, settings)[:2] == (30, 24)
    for left in (0.0, 0.5, 5.0, 50.0, 500.0):
        for seconds in (1e-4, 0.01, 0.1, 3.0):
            per_grid, n_members, later = plan_ensemble(left, seconds, 2, settings)
            assert 1 <= per_grid <= 30
            assert 1 <= n_members <= 24
            assert 0 <= later <= left / 2
            taken = per_grid * n_members * seconds / 2
            assert taken <= left / 3 + 1e-9 or per_grid == 1
            if n_members > 1:  # all of them can be trained
                assert left - taken - later >= 0.25 * n_members * 20 * seconds / 2
    one_grid = settings_of("paper-bte", {})
    per_grid, n_members, _ = plan_ensemble(10.0, 0.05, 2, one_grid)
    assert per_grid == int(10 / 3 * 2 / 0.05)
    assert n_members < 20
    many = replace(settings, n_candidates=10**400)  # more than a float can hold
    assert plan_ensemble(10.0, 0.05, 2, many) == plan_ensemble(10.0, 0.05, 2, settings)


def test_members_share_the_time_left():
    assert turn_seconds(12.0, 2, 6) == 4.0
    assert turn_seconds(12.0, 2, 2) == turn_seconds(12.0, 4, 1) == 12.0
    assert turn_seconds(0.0, 2, 6) == 0.0
