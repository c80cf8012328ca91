"""The mixture on the CUDA engine: conditioned there, and answering there, as on the CPU.

In numba's simulator, under arrays as strict as CuPy's, or on a card (TRIEGP_TEST_CARD=1).
"""

import contextlib
import pickle
from dataclasses import replace

import numpy as np
import pytest

import triegp
from on_card import ON_CARD
from simulated_card import strict_card
from tolerances import FITS, ROUNDING
from triegp import BinaryTreeGPRegressor
from triegp.calibration.model import base_of, place_model
from triegp.calibration.stage import TREES_FEWEST
from triegp.devices import on_device, to_host
from triegp.encoding import BitEncoder
from triegp.engines import CpuEngine
from triegp.engines.cuda import CudaEngine
from triegp.mixture.train import card_bytes

N_ROWS = 3_000 if ON_CARD else 26
N_NEW = 500 if ON_CARD else 9


@pytest.fixture(scope="module", autouse=True)
def strict():
    with contextlib.nullcontext() if ON_CARD else strict_card():
        yield


def problem(seed=1, n=N_ROWS):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def regressor(engine, **parameters):
    few = {"n_members": 2, "n_candidates": 2, "max_iter": 1, "precision": 3, "random_state": 0}
    return BinaryTreeGPRegressor(engine=engine, **(few | parameters))


def new_rows():
    """Rows inside the box and, the first two, outside."""
    X, _ = problem(seed=2, n=N_NEW)
    X[0, 0], X[1, 1] = 1.02, -0.03
    return X


def both(X, y, *rest, **parameters):
    return tuple(regressor(engine, **parameters).fit(X, y, *rest) for engine in ("cpu", "cuda"))


def agree(found, expected):
    if isinstance(expected, tuple):
        for one, two in zip(found, expected, strict=True):
            agree(one, two)
    else:
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected, **FITS)


def as_with_many_rows(monkeypatch):
    """Local noise whatever it gains, and no trend, whose calibration is computed on the host."""
    monkeypatch.setattr("triegp.calibration.stage.LINE_FEWEST", 10)
    monkeypatch.setattr("triegp.calibration.stage.TREES_FEWEST", 10)
    monkeypatch.setattr("triegp.calibration.stage.LEAST_GAIN", -np.inf)
    monkeypatch.setattr("triegp.calibration.train.FEW_ROWS", 0)
    monkeypatch.setattr("triegp.calibration.folds.TREND_ROWS", 0)


QUESTIONS = {
    "mean": lambda model, X: model.predict(X),
    "mean of the function": lambda model, X: model.predict(X, latent=True),
    "deviation": lambda model, X: model.predict(X, return_std=True),
    "deviation of the function": lambda model, X: model.predict(X, return_std=True, latent=True),
    "interval": lambda model, X: model.predict_interval(X, 0.8),
    "quantiles": lambda model, X: model.predict_quantiles(X, [0.01, 0.5, 0.99], latent=True),
    "distribution": lambda model, X: (
        model.predict_distribution(X).means,
        model.predict_distribution(X).variances,
    ),
    "covariance": lambda model, X: model.predict(X, return_cov=True),
    "samples": lambda model, X: model.sample_y(X, 3),
    "functions": lambda model, X: model.sample_functions(3)(X),
    "groups": lambda model, X: model.predict_groups(X, [[0, 1], [2, 2]]),
    "log density": lambda model, X: model.log_density(X, np.zeros(len(X))),
    "leave-one-out": lambda model, X: model.loo_predict(),
    "loo density": lambda model, X: model.loo_log_density(),
    "importances": lambda model, X: model.feature_importances_,
    "evidence": lambda model, X: np.array([model.log_marginal_likelihood_, model.loo_score_]),
}
CASES = {
    "plain": {},
    "stacking": {"mixture": "stacking"},
    "unrelated": {"outside": "unrelated"},
    "clip": {"outside": "clip"},
}


@pytest.fixture(scope="module", params=CASES)
def models(request, strict):
    with pytest.MonkeyPatch.context() as patch:
        as_with_many_rows(patch)
        return both(*problem(), **CASES[request.param])


@pytest.mark.filterwarnings("ignore:.*lie outside the training box:UserWarning")
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_as_the_cpu(models, name):
    cpu, cuda = models
    assert base_of(cpu._stream.fitted[0]).on_host
    assert not base_of(cuda._stream.fitted[0]).on_host
    for stage in getattr(cuda._stream.fitted[0], "stages", ()):
        assert stage.trend is None
        assert stage.local is not None
        assert stage.local.ensemble is None or not stage.local.ensemble.on_host
    X = new_rows()
    agree(QUESTIONS[name](cuda, X), QUESTIONS[name](cpu, X))


@pytest.mark.filterwarnings("ignore:.*lie outside the training box:UserWarning")
@pytest.mark.parametrize("name", ["mean", "deviation", "interval"])
def test_rows_on_the_device_stay_there(models, name):
    _, cuda = models
    X = new_rows()
    found = QUESTIONS[name](cuda, CudaEngine().hold(X))
    parts = found if isinstance(found, tuple) else (found,)
    assert all(map(on_device, parts))
    agree(
        tuple(map(to_host, parts)) if len(parts) > 1 else to_host(found), QUESTIONS[name](cuda, X)
    )


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_other_types_of_features(kind):
    X, y = problem()
    X = (10 * X).astype(kind)
    cpu, cuda = both(X, y)
    agree(cuda.predict(X, return_std=True), cpu.predict(X, return_std=True))


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
def test_weights_known_noise_and_several_targets():
    X, y = problem()
    rng = np.random.default_rng(3)
    weight, known = rng.integers(0, 3, len(y)).astype(float), rng.random(len(y))
    for options in ({}, {"multi_target": "shared"}):
        cpu, cuda = both(X, np.stack([y, -(y**2)], axis=1), weight, known, **options)
        agree(cuda.predict(X, return_std=True), cpu.predict(X, return_std=True))
        agree(cuda.loo_predict(), cpu.loo_predict())


def test_repeated_measurements():
    X, y = problem()
    X[1::2] = X[::2][: len(X[1::2])]
    cpu, cuda = both(X, y)
    X = np.concatenate([X, new_rows()[2:]])
    agree(cuda.predict(X, return_std=True), cpu.predict(X, return_std=True))


def test_gaps_and_transformed_targets():
    X, y = problem()
    cpu, cuda = both(X, np.exp(y), target_transform="log")
    new = new_rows()[2:]
    new[0, 1] = np.nan
    for name in ("mean", "deviation", "interval", "log density"):
        agree(QUESTIONS[name](cuda, new), QUESTIONS[name](cpu, new))


def test_the_mean_by_trend_of_few_rows():
    X, y = problem(n=24)
    y = y + 20 * X[:, 0]
    cpu, cuda = both(X, y)
    assert cpu._stream.fitted[0].stages[0].trend is not None
    agree(cuda.predict(X, return_std=True), cpu.predict(X, return_std=True))


def test_rows_added_later(monkeypatch):
    as_with_many_rows(monkeypatch)
    X, y = problem()
    n = len(y) // 4 * 3
    cpu, cuda = (regressor(e).fit(X[:n], y[:n]) for e in ("cpu", "cuda"))
    for model in (cpu, cuda):
        model.partial_fit(X[n:], y[n:])
    new = new_rows()[2:]
    agree(cuda.predict(new, return_std=True), cpu.predict(new, return_std=True))
    assert not base_of(cuda._stream.fitted[0]).on_host


@pytest.mark.parametrize("by_hand", [True, False])
def test_rows_that_are_forgotten(by_hand):
    X, y = problem()
    host, card = both(X, y, refit=False)
    for model in (host, card):
        if by_hand:
            model.partial_fit(X[:3] + 1e-3, y[:3]).forget(keep_last=N_ROWS // 2, factor=0.5)
        else:
            model.set_params(window=N_ROWS // 2, half_life=N_ROWS // 10)
            model.partial_fit(X[:40] + 1e-3, y[:40])
            assert model.rows_.n_rows < N_ROWS
            assert model.rows_.weight[0] < 1.0
    assert not card._stream.fitted[0].on_host
    agree(card.predict(new_rows(), return_std=True), host.predict(new_rows(), return_std=True))


def test_saved_and_pickled_models_lie_on_the_host(models, tmp_path):
    _, cuda = models
    new = new_rows()[2:]
    expected = cuda.predict(new, return_std=True)
    cuda.save(tmp_path / "model")
    for copy in (triegp.load(tmp_path / "model"), pickle.loads(pickle.dumps(cuda))):
        assert base_of(copy._stream.fitted[0]).on_host
        agree(copy.set_params(engine="auto").predict(new, return_std=True), expected)
        assert base_of(copy._stream.fitted[0]).on_host
        found = copy.set_params(engine="cuda").predict(new, return_std=True)
        assert not base_of(copy._stream.fitted[0]).on_host
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, two)  # moved there, it has the same bits
        agree(copy.set_params(engine="cpu").predict(new, return_std=True), expected)
        assert base_of(copy._stream.fitted[0]).on_host


def test_a_missing_device_raises_and_saving_needs_none(models, tmp_path, monkeypatch):
    cpu, _ = models
    copy = pickle.loads(pickle.dumps(cpu)).set_params(engine="cuda")
    monkeypatch.setattr("triegp.engines.choice.cuda_problem", lambda: "no device")
    with pytest.raises(RuntimeError, match='engine="cuda" cannot run here: no device'):
        copy.predict(new_rows())
    copy.save(tmp_path / "model")


def test_answers_do_not_depend_on_blocks(models, monkeypatch):
    _, cuda = models
    X = new_rows()[2:]
    expected = cuda.predict(X, return_std=True)
    monkeypatch.setattr("triegp.estimators.units.DEVICE_ROWS", 3)
    monkeypatch.setattr("triegp.calibration.local.DEVICE_ROWS", 2)
    for one, two in zip(cuda.predict(X, return_std=True), expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=ROUNDING)  # a device's BLAS goes by the shape


def test_room_for_the_model(monkeypatch):
    X, y = problem()
    encoders = [BitEncoder(precision=3).fit(X)]
    few, more = (regressor("cuda", n_members=k)._settings() for k in (2, 4))
    room = [card_bytes(encoders, one, len(y), 1) for one in (few, more)]
    assert room[1] - room[0] >= 2 * 72 * len(y)  # messages of two members
    monkeypatch.setattr("triegp.engines.choice._free_bytes", lambda: 100)
    with pytest.raises(MemoryError, match="GB on the device"):
        regressor("cuda").fit(X, y)


def test_models_of_two_targets_may_lie_apart():
    """With "auto", the device may have room for the first only."""
    X, y = problem()
    cpu, cuda = both(X, np.stack([y, y**2], axis=1))
    one, two = cuda._stream.fitted
    apart = replace(cuda._stream, fitted=(one, place_model(two, CpuEngine())))
    cuda._stream = apart
    cuda.set_params(engine="auto")
    new = new_rows()[2:]
    agree(cuda.predict(new, return_std=True), cpu.predict(new, return_std=True))
    assert cuda._stream is apart
    for engine in ("cuda", "cpu"):
        agree(cuda.set_params(engine=engine).predict(new), cpu.predict(new))
        assert {part.on_host for part in cuda._stream.fitted} == {engine == "cpu"}


@pytest.mark.filterwarnings("ignore:.*lie outside the training box:UserWarning")
@pytest.mark.parametrize("kind", [">f8", "float16", "longdouble", "bool"])
def test_new_rows_of_any_type(models, kind):
    cpu, cuda = models
    X = new_rows()[2:].astype(kind)
    agree(cuda.predict(X), cpu.predict(X))


@pytest.mark.card
def test_many_rows_with_local_noise():
    X, y = problem(n=TREES_FEWEST * 100)
    cpu, cuda = both(X, y, precision=None, max_iter=20)
    new = new_rows()[2:]
    agree(cuda.predict(new, return_std=True), cpu.predict(new, return_std=True))
