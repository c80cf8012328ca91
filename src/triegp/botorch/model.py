"""A fitted estimator as a BoTorch model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood

Floats = npt.NDArray[np.float64]

JITTER = 1e-8  # of each variance, so that rows that repeat within a q-batch have a Cholesky factor


class TrieGPModel(Model, FantasizeMixin):  # type: ignore[misc]
    """A fitted `BinaryTreeGPRegressor` or `TrieGPRegressor` as a BoTorch model.

    The posterior is that of the latent function: a Gaussian with the mean and the joint covariance
    of `predict(return_cov=True, latent=True)`. Covariances of all q-batches of a call take one pass
    over the distinct rows (`predict_groups`).

    Parameters
    ----------
    estimator : estimator or sequence of estimators
        Fitted. Targets must not be transformed. A sequence belongs to a batch of models, as
        `condition_on_observations` makes it; it must have as many entries as `batch_shape`.
    output_indices : sequence of int, optional
        Targets that are outputs; all by default.
    batch_shape : sequence of int, default=()
        Batch shape of the model.
    input_transform : InputTransform, optional
        Applied to every X. The estimator must have been fitted to rows that were transformed alike.
    outcome_transform : OutcomeTransform, optional
        Of the outputs, trained. The estimator must have been fitted to transformed targets;
        posteriors are in the units before that.

    Notes
    -----
    A tree is piecewise constant, so there are no gradients by X: `posterior` raises
    UnsupportedError for an X that requires them. Use `optimize_acqf_discrete`, or
    `triegp.botorch.suggest`.
    """

    def __init__(
        self,
        estimator: Any,
        output_indices: Sequence[int] | None = None,
        batch_shape: Any = (),
        *,
        input_transform: Any = None,
        outcome_transform: Any = None,
    ) -> None:
        super().__init__()
        models = list(estimator) if isinstance(estimator, list | tuple) else [estimator]
        self._batch = torch.Size(batch_shape)
        if len(models) != self._batch.numel():
            raise ValueError(
                f"estimator must be one per entry of batch_shape {tuple(self._batch)}, "
                f"got {len(models)}"
            )
        for one in models:
            if not hasattr(one, "predict_groups"):
                raise ValueError(f"estimator must be one of triegp, got {type(one).__name__}")
            shown = np.atleast_1d(np.array(one.target_transform_, object)).tolist()
            if any(name != "identity" for name in shown):
                raise ValueError(
                    "estimator must not transform its targets, because their joint distribution "
                    f"is not Gaussian, got target_transform {shown}: draw functions by "
                    "sample_functions, or use suggest(..., method='thompson')"
                )
        self._models = models
        n_targets = int(models[0].target_mean_.size)
        chosen = list(range(n_targets)) if output_indices is None else list(output_indices)
        if not chosen or not all(0 <= k < n_targets for k in chosen):
            raise ValueError(f"output_indices must be 0 to {n_targets - 1}, got {output_indices}")
        self._outputs = chosen
        self.likelihood = GaussianLikelihood()  # BoTorch reads its type: noise is inferred
        if input_transform is not None:  # BoTorch asks whether there is such an attribute
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform

    @property
    def estimator(self) -> Any:
        """The estimator; a list if the model has a batch shape."""
        return self._models if self._batch else self._models[0]

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the model."""
        return self._batch

    def subset_output(self, idcs: list[int]) -> TrieGPModel:
        """The model with some of its outputs."""
        chosen = [self._outputs[k] for k in idcs]
        return self._with(self._models, chosen, self._batch, self._outcome_transform(idcs))

    def posterior(
        self,
        X: torch.Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | torch.Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """Joint posterior of each q-batch.

        Parameters
        ----------
        X : tensor (b x q x d)
            Rows; any number of batch dimensions.
        output_indices : list of int, optional
            Outputs to predict; all by default.
        observation_noise : bool or tensor, default=False
            Whether to add the noise of a new observation, independently for each row; or variances
            that are added, which broadcast to b x q x m, of transformed outcomes.
        posterior_transform : PosteriorTransform, optional
            Applied to the posterior.

        Returns
        -------
        GPyTorchPosterior
            Of shape b x q x m, in the dtype and on the device of X. Outputs are independent.
            Another posterior if the outcome transform is not linear.

        Notes
        -----
        O(K (n + r + b q^2)) for r distinct rows and a mixture of K trees. `TrieGPRegressor` solves
        once per distinct row.
        """
        if X.requires_grad:
            raise UnsupportedError(
                "TrieGPModel has no gradients by X, because a tree is piecewise constant: use "
                "optimize_acqf_discrete, or triegp.botorch.suggest"
            )
        self.eval()  # transforms learn while they train
        X = self.transform_inputs(X)
        chosen = range(self.num_outputs) if output_indices is None else output_indices
        outputs = [self._outputs[k] for k in chosen]
        shape = torch.broadcast_shapes(X.shape[:-2], self._batch)
        rows = X.detach().expand(*shape, *X.shape[-2:])
        noisy = observation_noise is True
        mean, cov = self._moments(rows.cpu().double().numpy(), outputs, noisy=noisy)
        if isinstance(observation_noise, torch.Tensor):
            extra = np.broadcast_to(observation_noise.detach().cpu().double().numpy(), mean.shape)
            cov = cov + np.eye(mean.shape[-2])[:, :, None] * extra[..., :, None, :]
        parts = [
            MultivariateNormal(
                torch.as_tensor(mean[..., k].copy(), dtype=X.dtype, device=X.device),
                torch.as_tensor(cov[..., k].copy(), dtype=X.dtype, device=X.device),
            )
            for k in range(len(outputs))
        ]
        joint = parts[0]
        if len(parts) > 1:
            joint = MultitaskMultivariateNormal.from_independent_mvns(parts)
        found = GPyTorchPosterior(distribution=joint)
        outcome_transform = self._outcome_transform(chosen)
        if outcome_transform is not None:
            found = outcome_transform.untransform_posterior(found, X=X)
        return found if posterior_transform is None else posterior_transform(found)

    def condition_on_observations(
        self, X: torch.Tensor, Y: torch.Tensor, noise: torch.Tensor | None = None, **kwargs: Any
    ) -> TrieGPModel:
        """The model given more observations, by inserting them; nothing is trained again.

        Parameters
        ----------
        X : tensor (batch x n' x d)
            Rows inside the training box.
        Y : tensor (batch' x n' x m)
            Observations; batch' may have more leading dimensions than batch, such as fantasies.
        noise : tensor (broadcasts to Y), optional
            Known variances of the observations, the same for all outputs; of transformed outcomes,
            as BoTorch passes them.

        Returns
        -------
        TrieGPModel
            With the broadcast batch shape: one estimator per batch, each exactly as after
            `partial_fit` with refit=False. O(n) per batch.
        """
        if kwargs:
            raise ValueError(f"unknown arguments: {', '.join(sorted(kwargs))}")
        every = self._models[0].target_mean_.size
        if self._outputs != list(range(every)):
            raise UnsupportedError("a subset of the outputs cannot be conditioned: condition first")
        self.eval()
        X = self.transform_inputs(X)
        outcome_transform = self._outcome_transform(range(self.num_outputs))
        if outcome_transform is not None:
            Y, _ = outcome_transform(Y, X=X)
        shape = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self._batch)
        rows = X.detach().expand(*shape, *X.shape[-2:]).reshape(-1, *X.shape[-2:])
        targets = Y.detach().expand(*shape, *Y.shape[-2:]).reshape(-1, *Y.shape[-2:])
        known: Any = [None] * max(shape.numel(), 1)
        if noise is not None:
            wide = noise.detach().expand(*shape, *Y.shape[-2:]).reshape(-1, *Y.shape[-2:])
            if not bool((wide == wide[..., :1]).all()):
                raise UnsupportedError("noise must be the same for all outputs of an observation")
            known = wide[..., 0].cpu().double().numpy()
        owners = np.broadcast_to(np.arange(len(self._models)).reshape(self._batch), shape).ravel()
        models = []
        for owner, x, y, eps in zip(owners.tolist(), rows, targets, known, strict=True):
            own = self._models[owner]
            data, values = x.cpu().double().numpy(), y.cpu().double().numpy()
            if own.outside_box(data).any():
                raise ValueError("X must lie inside the training box, got rows outside")
            twin = own._twin(refit=False)
            models.append(twin.partial_fit(data, values[:, 0] if every == 1 else values, None, eps))
        return self._with(models, self._outputs, shape, outcome_transform)

    def _with(
        self, models: list[Any], outputs: list[int], batch_shape: Any, outcome_transform: Any
    ) -> TrieGPModel:
        """A model of other estimators or outputs, with the same input transform."""
        return TrieGPModel(
            models,
            outputs,
            batch_shape,
            input_transform=getattr(self, "input_transform", None),
            outcome_transform=outcome_transform,
        )

    def _outcome_transform(self, chosen: Sequence[int]) -> Any:
        """The outcome transform of some outputs, None if there is none."""
        transform = getattr(self, "outcome_transform", None)
        if transform is None or list(chosen) == list(range(self.num_outputs)):
            return transform
        return transform.subset_output(idcs=list(chosen))

    def _set_transformed_inputs(self) -> None:
        """Nothing: BoTorch would transform training rows, which the estimator knows transformed."""

    def _moments(self, X: Floats, outputs: list[int], *, noisy: bool) -> tuple[Floats, Floats]:
        """Means (..., q, m) and covariances (..., q, q, m) of the outputs."""
        shape, q, m = X.shape[:-2], X.shape[-2], len(outputs)
        mean, cov = np.empty((*shape, q, m)), np.empty((*shape, q, q, m))
        lead = len(shape) - len(self._batch)
        at = (slice(None),) * lead
        for k, model in enumerate(self._models):
            index = at + tuple(np.unravel_index(k, self._batch) if self._batch else ())
            own = X[index].reshape(-1, X.shape[-1])
            some, place = np.unique(own, axis=0, return_inverse=True)
            groups = place.reshape(-1, q)
            found, parts = model.predict_groups(some, groups)
            found = found.reshape(some.shape[0], -1)[:, outputs]
            parts = parts.reshape(*parts.shape[:3], -1)[..., outputs]
            diagonal = np.einsum("gqqm->gqm", parts)
            var = diagonal * JITTER
            if noisy:
                both = [model.predict(some, return_std=True, latent=latent)[1] for latent in (0, 1)]
                total, latent = (np.square(s).reshape(some.shape[0], -1)[:, outputs] for s in both)
                var = var + np.maximum(total - latent, 0.0)[groups]
            parts = parts + np.eye(q)[None, :, :, None] * var[:, :, None]
            mean[index] = found[groups].reshape(mean[index].shape)
            cov[index] = parts.reshape(cov[index].shape)
        return mean, cov
