"""The BoTorch model: posteriors against the estimator, conditioning, and acquisition functions."""

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch", reason="needs the extra botorch: make botorch-test")
pytest.importorskip("botorch.models", reason="needs the extra botorch: make botorch-test")

from botorch.acquisition.analytic import LogExpectedImprovement  # noqa: E402
from botorch.acquisition.logei import qLogExpectedImprovement  # noqa: E402
from botorch.acquisition.objective import ScalarizedPosteriorTransform  # noqa: E402
from botorch.exceptions.errors import UnsupportedError  # noqa: E402
from botorch.generation import MaxPosteriorSampling  # noqa: E402
from botorch.models.transforms.input import Normalize  # noqa: E402
from botorch.models.transforms.outcome import Log, Standardize  # noqa: E402
from botorch.optim import optimize_acqf_discrete  # noqa: E402
from botorch.sampling.get_sampler import get_sampler  # noqa: E402
from botorch.sampling.normal import SobolQMCNormalSampler  # noqa: E402

from tolerances import LOOSE  # noqa: E402
from triegp import BinaryTreeGPRegressor, TrieGPRegressor  # noqa: E402
from triegp.botorch import TrieGPModel, suggest  # noqa: E402
from triegp.models.improvement import log_improvement  # noqa: E402

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 5, "random_state": 0}


def make_data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, 3 - 4 * np.square(X - 0.4).sum(axis=1) + 0.1 * rng.standard_normal(n)


def two_targets(X, y):
    return np.column_stack([y, X[:, 0] + 0.3 * np.sin(1e4 * y)])


def inner(*shape, seed=1):
    return torch.as_tensor(np.random.default_rng(seed).random((*shape, 3)) * 0.9 + 0.05)


@pytest.fixture(scope="module")
def mixture():
    return BinaryTreeGPRegressor(**QUICK).fit(*make_data())


@pytest.fixture(scope="module")
def both():
    X, y = make_data()
    return BinaryTreeGPRegressor(**QUICK).fit(X, two_targets(X, y))


@pytest.fixture(scope="module")
def forest():
    return TrieGPRegressor(n_trees=4, max_iter=3, random_state=0).fit(*make_data())


@pytest.fixture(scope="module")
def shared():
    X, y = make_data()
    model = TrieGPRegressor(n_trees=4, max_iter=3, random_state=0, multi_target="shared")
    return model.fit(X, two_targets(X, y))


@pytest.mark.parametrize("name", ["mixture", "forest"])
@pytest.mark.parametrize("noise", [False, True])
def test_posterior_is_that_of_the_estimator(name, noise, request):
    estimator = request.getfixturevalue(name)
    X = inner(4, 2, 3)
    X[2, 1] = X[2, 0]  # the same row, function by function
    found = TrieGPModel(estimator).posterior(X, observation_noise=noise)
    assert found.mean.shape == (4, 2, 3, 1)
    for i in range(4):
        for j in range(2):
            rows = X[i, j].numpy()
            mean, cov = estimator.predict(rows, return_cov=True, latent=True)
            if noise:
                total = estimator.predict(rows, return_std=True)[1] ** 2
                latent = estimator.predict(rows, return_std=True, latent=True)[1] ** 2
                cov = cov + np.diag(np.maximum(total - latent, 0.0))
            np.testing.assert_allclose(found.mean[i, j, :, 0], mean, **LOOSE)
            own = found.distribution.covariance_matrix[i, j]
            np.testing.assert_allclose(own, cov, **LOOSE)


@pytest.mark.parametrize("name", ["both", "shared"])
def test_outputs_dtype_and_noise(name, request):
    model = TrieGPModel(request.getfixturevalue(name))
    X = inner(5, 2)
    found = model.posterior(X)
    assert found.mean.shape == found.variance.shape == (5, 2, 2)
    assert model.num_outputs == 2
    assert model.batch_shape == torch.Size([])
    second = model.posterior(X, output_indices=[1])
    np.testing.assert_allclose(second.mean[..., 0], found.mean[..., 1], **LOOSE)
    part = model.subset_output([1])
    assert part.num_outputs == 1
    np.testing.assert_allclose(part.posterior(X).variance, second.variance, **LOOSE)
    wide = model.posterior(X, observation_noise=torch.tensor([[0.5, 2.0]]).double())
    np.testing.assert_allclose(
        wide.variance - found.variance, np.broadcast_to([0.5, 2.0], (5, 2, 2)), **LOOSE
    )
    assert model.posterior(X.float()).mean.dtype == torch.float32
    weight = torch.tensor([2.0, -1.0]).double()
    one = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weight))
    np.testing.assert_allclose(one.mean[..., 0], found.mean @ weight, **LOOSE)


def test_samples_have_the_joint_law(mixture):
    X = inner(2, 3)
    posterior = TrieGPModel(mixture).posterior(X)
    sampler = get_sampler(posterior, torch.Size([4096]), seed=0)
    assert isinstance(sampler, SobolQMCNormalSampler)
    for drawn in (sampler(posterior), posterior.rsample(torch.Size([20_000]))):
        for i in range(2):
            mean, cov = mixture.predict(X[i].numpy(), return_cov=True, latent=True)
            values = drawn[:, i, :, 0].numpy().T
            apart = values - mean[:, None]
            products = apart[:, None] * apart[None]
            error = products.std(axis=-1) / np.sqrt(values.shape[1])
            assert np.abs((products.mean(axis=-1) - cov) / error).max() < 5.0


def test_gradients_are_refused(mixture):
    with pytest.raises(UnsupportedError, match="piecewise constant"):
        TrieGPModel(mixture).posterior(inner(2, 1).requires_grad_())


@pytest.mark.parametrize("name", ["mixture", "both", "shared"])
def test_conditioning_is_partial_fit(name, request):
    estimator = request.getfixturevalue(name)
    X, new = inner(4), inner(3, 2, seed=5)
    Y = torch.arange(8.0).double().reshape(4, 2)[:, : 1 if name == "mixture" else 2]
    before = estimator.predict(new[0].numpy())
    found = TrieGPModel(estimator).condition_on_observations(X, Y)
    data, columns = make_data()[0], make_data()[1]
    targets = columns if name == "mixture" else two_targets(data, columns)
    other = clone(estimator).set_params(refit=False).fit(data, targets)
    other.partial_fit(X.numpy(), Y.numpy()[:, 0] if name == "mixture" else Y.numpy())
    expected = TrieGPModel(other).posterior(new)
    np.testing.assert_array_equal(found.posterior(new).mean, expected.mean)
    np.testing.assert_array_equal(found.posterior(new).variance, expected.variance)
    np.testing.assert_array_equal(estimator.predict(new[0].numpy()), before)


def test_fantasies_have_a_batch_shape(mixture):
    model, X = TrieGPModel(mixture), inner(2)
    fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([3]), seed=0))
    assert fantasy.batch_shape == torch.Size([3])
    found = fantasy.posterior(inner(5, 1, 2, seed=7))
    assert found.mean.shape == (5, 3, 2, 1)
    one = TrieGPModel(fantasy.estimator[1]).posterior(inner(5, 1, 2, seed=7))
    np.testing.assert_array_equal(found.mean[:, 1], one.mean[:, 0])
    again = fantasy.condition_on_observations(X, torch.zeros(3, 2, 1).double())
    assert again.batch_shape == torch.Size([3])


def test_discrete_optimisation_and_thompson_sampling(mixture):
    model, choices = TrieGPModel(mixture), inner(200, seed=3)
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    acquisition = qLogExpectedImprovement(model, best_f=2.5, sampler=sampler)
    found, _ = optimize_acqf_discrete(acquisition, q=2, choices=choices)
    assert found.shape == (2, 3)
    assert not torch.equal(found[0], found[1])
    first = acquisition(choices[:, None])
    assert torch.equal(found[0], choices[first.argmax()])
    chosen = MaxPosteriorSampling(model, replacement=False)(choices[:50], num_samples=4)
    assert chosen.shape == (4, 3)


def test_suggest_takes_the_best_of_each_function(mixture):
    rows = inner(300, seed=4).numpy()
    found = suggest(mixture, rows, 5, random_state=3)
    rng = np.random.default_rng(np.random.RandomState(3).randint(0, 2**31 - 1, size=4))
    values = mixture.sample_functions(5, random_state=rng)(rows)
    chosen = []
    for column in values.T:
        chosen.append(next(k for k in np.argsort(-column, kind="stable") if k not in chosen))
    assert found.tolist() == chosen


def test_suggest_by_improvement_and_mean(mixture):
    rows = inner(300, seed=4).numpy()
    mean = mixture.predict(rows, latent=True)
    assert suggest(mixture, rows, 3, "mean").tolist() == np.argsort(-mean)[:3].tolist()
    found = suggest(mixture, rows, 4, "qlogei", n_screened=50)
    assert np.unique(found).size == 4
    assert mean[found].mean() > mean.mean()


def test_log_improvement_against_botorch(mixture):
    rows = inner(40, seed=6)
    exact = LogExpectedImprovement(TrieGPModel(mixture), best_f=4.0)(rows[:, None])
    mean, std = mixture.predict(rows.numpy(), return_std=True, latent=True)
    np.testing.assert_allclose(log_improvement(mean, std, 4.0), exact, rtol=1e-6)
    u = np.array([-1e6, -30.0, -1.0, 0.0, 5.0])
    found = log_improvement(u, np.ones(5), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()


def test_bad_arguments(mixture, both):
    X, y = make_data()
    Y = torch.zeros(1, 1).double()
    logs = BinaryTreeGPRegressor(**QUICK, target_transform="log").fit(X, np.exp(y))
    for call, said in (
        (lambda: TrieGPModel(logs), "target_transform"),
        (lambda: TrieGPModel(3.0), "one of triegp"),
        (lambda: TrieGPModel(mixture, [1]), "output_indices"),
        (lambda: TrieGPModel([mixture, mixture]), "batch_shape"),
        (lambda: TrieGPModel(mixture).condition_on_observations(2 + inner(1), Y), "box"),
        (lambda: suggest(mixture, X, 3, "guess"), "method"),
        (lambda: suggest(mixture, X, 1000), "at most"),
        (lambda: suggest(mixture, X[0], 1), "candidates"),
        (lambda: suggest(both, X, 1), "one target"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def scaled(X):
    """Rows in units of their own, of which `in_box` makes those that the estimator knows."""
    return 10 * X - 3


def in_box():
    return Normalize(d=3, bounds=torch.as_tensor([[-3.0] * 3, [7.0] * 3], dtype=torch.float64))


def standardised(m=1):
    """Targets as an estimator was fitted to them, from 100 + 20 y."""
    made = Standardize(m=m)
    made.train()
    levels = torch.as_tensor([[80.0], [120.0], [100.0]]).double().expand(3, m)
    made(levels + 5 * torch.arange(m))
    return made.eval()


@pytest.mark.parametrize("later", [False, True])
def test_transforms_of_inputs_and_outcomes(mixture, later):
    X = inner(4, 2)
    plain = TrieGPModel(mixture).posterior(X, observation_noise=True)
    if later:
        model = TrieGPModel(mixture)
        model.input_transform, model.outcome_transform = in_box(), standardised()
    else:
        model = TrieGPModel(mixture, input_transform=in_box(), outcome_transform=standardised())
    model.train()  # as for every model of BoTorch, a posterior does not learn bounds anew
    found = model.posterior(scaled(X), observation_noise=True)
    assert not model.training
    np.testing.assert_allclose(found.mean, 100 + 20 * plain.mean, **LOOSE)
    np.testing.assert_allclose(found.variance, 400 * plain.variance, **LOOSE)
    covariance = 400 * plain.distribution.covariance_matrix
    np.testing.assert_allclose(found.distribution.covariance_matrix, covariance, **LOOSE)
    chosen = LogExpectedImprovement(model, best_f=100.0)(scaled(X[:, :1]))
    wanted = LogExpectedImprovement(TrieGPModel(mixture), best_f=0.0)(X[:, :1])
    np.testing.assert_allclose(chosen, wanted + np.log(20), rtol=1e-6)


def test_observations_and_fantasies_are_transformed_once(mixture):
    X, y = inner(5), torch.linspace(-1, 1, 5).double()[:, None]
    model = TrieGPModel(mixture, input_transform=in_box(), outcome_transform=standardised())
    wanted = TrieGPModel(mixture).condition_on_observations(X, y).posterior(X)
    grown = model.condition_on_observations(scaled(X), 100 + 20 * y)
    np.testing.assert_allclose(grown.posterior(scaled(X)).mean, 100 + 20 * wanted.mean, **LOOSE)
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    fantasies = model.fantasize(scaled(X), sampler)
    wanted = TrieGPModel(mixture).fantasize(X, sampler).posterior(X)
    found = fantasies.posterior(scaled(X))
    np.testing.assert_allclose(found.mean, 100 + 20 * wanted.mean, rtol=1e-6)


def test_outcome_transforms_follow_the_outputs(both):
    X = inner(2)
    model = TrieGPModel(both, outcome_transform=standardised(2))
    whole = model.posterior(X).mean
    for part in (model.posterior(X, output_indices=[1]), model.subset_output([1]).posterior(X)):
        np.testing.assert_allclose(part.mean, whole[:, 1:], **LOOSE)
    assert abs(whole[:, 1].mean() - 105) < 60  # targets of order 1


def test_outcomes_that_are_no_gaussian_any_more(mixture):
    found = TrieGPModel(mixture, outcome_transform=Log()).posterior(inner(2))
    assert (found.rsample(torch.Size([8])) > 0).all()
