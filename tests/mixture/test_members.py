"""Predictions of an ensemble: members are asked in parallel and mixed by the definition."""

import numpy as np
import pytest

from tolerances import VALUE
from triegp import BinaryTreeGPRegressor
from triegp.calibration.model import base_of
from triegp.engines import CpuEngine
from triegp.mixture.members import FEWEST_APIECE, average_left_out, leave_out_members, mix
from triegp.tree import predict


@pytest.fixture(scope="module")
def ensemble():
    rng = np.random.default_rng(0)
    X = rng.random((800, 3)).round(2)
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(800)
    model = BinaryTreeGPRegressor(n_members=5, n_candidates=3, max_iter=10, random_state=0)
    return base_of(model.fit(X, y)._stream.fitted[0])


@pytest.fixture(scope="module")
def new():
    return np.random.default_rng(1).random((FEWEST_APIECE + 100, 3)).round(2)


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("var", [False, True])
def test_pieces_of_the_rows_give_the_same_bits(ensemble, new, latent, var):
    def ask(X):
        found = ensemble.predict(ensemble.read(X, var=var), 0, var=var, latent=latent)
        return found.means, found.variances

    whole = ask(new)
    pieces = [ask(new[:7]), ask(new[7:500]), ask(new[500:])]
    for k in range(2):
        np.testing.assert_array_equal(np.hstack([piece[k] for piece in pieces]), whole[k])


def test_an_observation_has_the_moments_of_the_mixture(ensemble, new):
    points = ensemble.read(new, var=True)
    found = ensemble.predict(points, 0, var=True, latent=False)
    parts = [
        predict(member.posteriors[0], own, apart=ensemble.apart)
        for member, own in zip(ensemble.members, points, strict=True)
    ]
    noise = np.array([[member.posteriors[0].new_noise] for member in ensemble.members])
    weight, means = ensemble.calibrations[0].weight, np.stack([part.mean for part in parts])
    mean = weight @ means
    var = weight @ (np.stack([part.var for part in parts]) + noise + np.square(means - mean))
    np.testing.assert_allclose(found.mean(), mean, **VALUE)
    np.testing.assert_allclose(found.var(), var, **VALUE)


def test_an_average_of_variances_has_the_same_bits_with_any_number_of_threads(
    ensemble, monkeypatch
):
    left = leave_out_members(ensemble.members, 0)
    for n_threads in (1, 2, 8):
        monkeypatch.setattr("triegp.mixture.members.threads_of", lambda _, n=n_threads: n)
        found = average_left_out(ensemble.members, 0)
        np.testing.assert_array_equal(found.mean, left.mean)
        np.testing.assert_array_equal(found.var[0], left.var.mean(axis=0))
        np.testing.assert_array_equal(found.noise, left.noise)


@pytest.mark.parametrize("wide", [False, True])
def test_mixing_does_not_depend_on_threads_or_blocks(ensemble, wide, monkeypatch):
    left = leave_out_members(ensemble.members, 0)
    noise = np.random.default_rng(2).random(left.mean.shape) if wide else left.noise[:, :1]
    weight = ensemble.calibrations[0].weight
    mean = np.einsum("k,km->m", weight, left.mean)
    var = np.einsum("k,km->m", weight, left.var + noise + np.square(left.mean - mean))
    one = mix(CpuEngine(n_threads=1), weight, left.mean, left.var, noise)
    np.testing.assert_allclose((one[0], one[1] + one[2]), (mean, var), **VALUE)
    monkeypatch.setattr("triegp.mixture.members.MIXED_ROWS", 37)
    two = mix(CpuEngine(n_threads=2), weight, left.mean, left.var, noise)
    np.testing.assert_array_equal(one, two)
