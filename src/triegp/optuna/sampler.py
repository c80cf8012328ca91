"""A sampler of Optuna that searches with a triegp model."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sklearn.base import clone

from triegp.checks import whole_number
from triegp.estimators.trie_regressor import TrieGPRegressor
from triegp.models.improvement import log_improvement
from triegp.optuna.space import decode, draw, encode, is_categorical, mutate

Floats = npt.NDArray[np.float64]

N_TREES = 8  # of the default model: studies have few rows
N_BEST = 5  # trials near which half of the candidates lie


class TrieSampler(BaseSampler):  # type: ignore[misc]
    """Bayesian optimisation by expected improvement under a triegp model.

    For each trial, the model is fitted to all finished trials. Of many candidates, half of them
    random and half near the best trials, the one of the largest expected improvement is suggested.
    Floats, integers, steps, log scales and categories are handled as such.

    Parameters
    ----------
    estimator : estimator, optional
        Of triegp, not fitted; `TrieGPRegressor(n_trees=8)` by default. It is cloned. The sampler
        sets `outside="clip"`, `categorical_features` and `random_state`.
    n_startup_trials : int, default=10
        Finished trials before the model is used; until then `independent_sampler` suggests.
    n_candidates : int, default=2000
        Candidates per trial, at least 10.
    independent_sampler : BaseSampler, optional
        Suggests the first trials, and parameters that not all trials have. A `RandomSampler` with
        the same seed by default.
    seed : int, optional
        Seed. With the same seed, trials that run one after the other are the same again.

    Examples
    --------
    >>> import optuna
    >>> from triegp.optuna import TrieSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> def objective(trial):
    ...     rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    ...     kind = trial.suggest_categorical("kind", ["a", "b"])
    ...     return abs(rate - 0.01) + (kind == "a")
    >>> study = optuna.create_study(sampler=TrieSampler(seed=0))
    >>> study.optimize(objective, n_trials=15)
    >>> study.best_params["kind"]
    'b'

    Notes
    -----
    Running trials count as observed, with the mean that is predicted for them; the model is then
    fitted twice. What was tried or is running is not suggested again, as long as there are other
    candidates. Failed and pruned trials are not used. Infinite values count as the worst or best
    finite one. Constraints are not used. Studies with several objectives raise ValueError.

    A fit of n trials takes what `TrieGPRegressor` takes: tenths of a second for some hundred. Fits
    of threads that share a sampler wait for each other.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_startup_trials: int = 10,
        n_candidates: int = 2_000,
        independent_sampler: BaseSampler | None = None,
        seed: int | None = None,
    ) -> None:
        if estimator is not None and not hasattr(estimator, "predict_groups"):
            raise ValueError(f"estimator must be one of triegp, got {type(estimator).__name__}")
        self._estimator = TrieGPRegressor(n_trees=N_TREES) if estimator is None else estimator
        self._n_startup = whole_number("n_startup_trials", n_startup_trials)
        self._n_candidates = whole_number("n_candidates", n_candidates, least=2 * N_BEST)
        self._independent = independent_sampler or RandomSampler(seed=seed)
        self._rng = np.random.default_rng(seed)
        self._space = IntersectionSearchSpace()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def reseed_rng(self) -> None:
        """Draw new seeds, as Optuna asks for in copies of the sampler."""
        self._rng = np.random.default_rng()
        self._independent.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Parameters that all trials have, with the same range, if there is a choice.

        Parameters
        ----------
        study : Study
            The study.
        trial : FrozenTrial
            The trial.
        """
        found = self._space.calculate(study)
        return {name: one for name, one in found.items() if not one.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Suggest values of the parameters in `search_space`.

        Parameters
        ----------
        study : Study
            The study.
        trial : FrozenTrial
            The trial.
        search_space : dict of str to BaseDistribution
            What `infer_relative_search_space` returned.
        """
        _refuse_several(study)
        states = (TrialState.COMPLETE, TrialState.RUNNING)
        trials = study.get_trials(deepcopy=False, states=states)
        trials = [own for own in trials if search_space.keys() <= own.params.keys()]
        done = [own for own in trials if own.state == TrialState.COMPLETE]
        if not search_space or len(done) < self._n_startup:
            return {}
        values = np.array([own.value for own in done], np.float64)
        if not np.isfinite(values).any():
            return {}
        known = values[np.isfinite(values)]
        y = np.clip(values, known.min(), known.max())
        y = y if study.direction == StudyDirection.MAXIMIZE else -y
        X = encode(search_space, [own.params for own in done])
        running = [own for own in trials if own.state == TrialState.RUNNING]
        waiting = encode(search_space, [own.params for own in running])
        with self._lock:
            return self._suggest(search_space, X, y, waiting)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Suggest a value of one parameter by the independent sampler.

        Parameters
        ----------
        study : Study
            The study.
        trial : FrozenTrial
            The trial.
        param_name : str
            Name of the parameter.
        param_distribution : BaseDistribution
            Its range.
        """
        _refuse_several(study)
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the independent sampler that a trial begins.

        Parameters
        ----------
        study : Study
            The study.
        trial : FrozenTrial
            The trial.
        """
        self._independent.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the independent sampler that a trial has ended.

        Parameters
        ----------
        study : Study
            The study.
        trial : FrozenTrial
            The trial.
        state : TrialState
            How it ended.
        values : sequence of float or None
            What it returned.
        """
        self._independent.after_trial(study, trial, state, values)

    def _suggest(
        self, space: dict[str, BaseDistribution], X: Floats, y: Floats, waiting: Floats
    ) -> dict[str, Any]:
        """Parameters of the best candidate, for a maximum of y (n,) at rows X (n, d)."""
        model = clone(self._estimator)
        model.set_params(
            outside="clip",
            categorical_features=is_categorical(space),
            random_state=int(self._rng.integers(2**31)),
        )
        half = self._n_candidates // 2
        near = [mutate(space, X[k], half // N_BEST, self._rng) for k in np.argsort(-y)[:N_BEST]]
        candidates = np.concatenate([draw(space, half, self._rng), *near])
        _fit(model, X, y)
        if waiting.size:
            y = np.append(y, model.predict(waiting, latent=True))
            X = np.concatenate([X, waiting])
            _fit(model, X, y)
        tried = {row.tobytes() for row in X}
        new = [k for k, row in enumerate(candidates) if row.tobytes() not in tried]
        candidates = candidates[new] if new else candidates
        mean, std = model.predict(candidates, return_std=True, latent=True)
        best = float(model.predict(X, latent=True).max())
        return decode(space, candidates[int(np.argmax(log_improvement(mean, std, best)))])


def _fit(model: Any, X: Floats, y: Floats) -> None:
    """Fit the model; trials that are copies of others are nothing to warn of here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".* are copies of others", UserWarning)
        model.fit(X, y)


def _refuse_several(study: Study) -> None:
    if len(study.directions) > 1:
        raise ValueError(
            f"TrieSampler optimises one objective, got a study with {len(study.directions)}"
        )
