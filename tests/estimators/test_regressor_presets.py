"""The paper's presets."""

import numpy as np
import pytest

from regressor_problems import make_data
from tolerances import CHAINED
from triegp import BinaryTreeGPRegressor
from triegp.mixture import settings as presets


@pytest.mark.parametrize("preset", ["paper-bt", "paper-bte"])
def test_the_papers_presets_do_as_the_paper_did(preset):
    X, y = make_data(50)
    settings = presets.settings_of(preset, {})
    assert (settings.n_candidates, settings.n_members, settings.optimizer) == (480, 20, "bfgs")
    model = BinaryTreeGPRegressor(preset=preset, n_candidates=48, max_iter=3, random_state=0)
    model.fit(X, y)
    (encoder,) = model.encoders_
    assert encoder.shift_ is None
    assert encoder.scaling == "minmax"
    assert encoder.margin == 1e-6
    assert encoder.precision_.tolist() == [8, 8]
    (trained,) = model.ensembles_
    assert all(member.encoder is encoder for member in trained.members)
    assert all(member.order.scale == 1.0 for member in trained.members)
    assert all(member.posteriors[0].noise == 1 / 50 for member in trained.members)
    (mixed,) = trained.calibrations
    assert (mixed.shrink, mixed.scale) == (1.0, 1.0)
    nll = np.array([member.trained.nll_per_row for member in trained.members])
    if preset == "paper-bt":
        assert mixed.weight.tolist() == [1.0]
    else:
        assert mixed.weight.size == 20
        np.testing.assert_allclose(
            mixed.weight, np.exp(-nll / 0.01) / np.exp(-nll / 0.01).sum(), rtol=CHAINED
        )


def test_bt_is_the_best_member_of_bte():
    X, y = make_data(50)
    options = {"n_candidates": 24, "n_members": 5, "max_iter": 3, "random_state": 0}
    many = BinaryTreeGPRegressor(preset="paper-bte", **options).fit(X, y).ensembles_[0].members
    (best,) = BinaryTreeGPRegressor(preset="paper-bt", **options).fit(X, y).ensembles_[0].members
    assert best.order == min(many, key=lambda member: member.trained.nll_per_row).order


def test_parameters_come_before_presets():
    X, y = make_data()
    model = BinaryTreeGPRegressor(
        preset="paper-bte",
        n_members=2,
        n_candidates=3,
        noise=0.3,
        nugget="bit",
        precision=4,
        shift=True,
        scaling="ecdf",
        learn_scale=True,
        max_iter=3,
        mixture="stacking",
        optimizer="lbfgs",
        random_state=0,
    ).fit(X, y)
    members = model.ensembles_[0].members
    assert all(member.posteriors[0].new_noise == 0.3 for member in members)
    assert all(member.encoder.precision_.tolist() == [5, 5] for member in members)
    assert all(member.encoder.scaling == "ecdf" for member in members)
    assert any(member.order.scale != 1.0 for member in members)
