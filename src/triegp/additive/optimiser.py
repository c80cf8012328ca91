"""Optimiser of a forest's parameters: Adam along shared and individual directions.

A step moves along four kinds of directions:

* the phi of one feature in all trees together (which features matter);
* all phi by a common factor (how rough the function is);
* every phi of every tree individually;
* scales, lengthscales of the smooth part, and noise.

Gradients along shared directions have little noise, so their steps are large. Steps of individual
phi are small, which keeps thousands of parameters from fitting the noise of the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.gradient import Gradient
from triegp.additive.settings import Settings
from triegp.additive.start import Parameters
from triegp.smooth.kernel import Kernel

Ints = npt.NDArray[np.int64]

LEAST_LOG_NOISE = float(np.log(1e-6))
LENGTHS = (1e-3, 1e6)  # lengthscales of standardised inputs
SLOPE_RATE = 0.2  # relative to the shared rate, because all phi move together


class Adam:
    """Adam with decay rates 0.9 and 0.98; the step size does not depend on the gradient's scale."""

    def __init__(self, rate: float) -> None:
        self.rate, self.n_steps = rate, 0
        self._mean: Any = 0.0
        self._square: Any = 0.0

    def step(self, gradient: Any, share: float = 1.0) -> Any:
        """The next change of the parameters, given the gradient; share: factor of the step size."""
        self.n_steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.98 * self._square + 0.02 * np.square(gradient)
        mean = self._mean / (1.0 - 0.9**self.n_steps)
        size = np.sqrt(self._square / (1.0 - 0.98**self.n_steps))
        return -share * self.rate * mean / (size + 1e-12)


class Optimiser:
    """Updates all parameters of a forest; features: for each tree, the feature of each bit."""

    def __init__(self, features: Sequence[Ints], settings: Settings) -> None:
        self._features = np.concatenate(features)
        self._cuts = np.cumsum([part.size for part in features])[:-1]
        self._shared, self._slope = Adam(settings.rate), Adam(SLOPE_RATE * settings.rate)
        self._scale, self._noise = Adam(settings.rate), Adam(settings.rate)
        self._length, self._smooth = Adam(settings.rate), Adam(settings.rate)
        self._single = Adam(settings.tree_rate)

    def step(self, old: Parameters, gradient: Gradient, share: float = 1.0) -> Parameters:
        """The parameters after one step against the gradient of the nll.

        share: factor of all step sizes.
        """
        phi, by_phi = np.concatenate(old.phi), np.concatenate(gradient.phi)
        shared = self._shared.step(np.bincount(self._features, by_phi), share)
        factor = float(np.exp(self._slope.step((phi * by_phi).sum(), share)))
        phi = factor * phi + self._single.step(by_phi, share) + shared[self._features]
        noise = old.log_noise + float(self._noise.step(gradient.noise * old.noise, share))
        scale = old.log_scale + self._scale.step(gradient.log_scale, share)
        smooth = old.smooth
        if smooth is not None:
            longer = np.exp(self._length.step(gradient.log_lengthscale, share))
            larger = float(np.exp(self._smooth.step(gradient.log_smooth, share)))
            length = np.clip(smooth.lengthscale * longer, *LENGTHS)
            smooth = Kernel(smooth.name, length, smooth.scale * larger)
        parts = tuple(np.split(phi, self._cuts))
        return Parameters(parts, scale, max(noise, LEAST_LOG_NOISE), smooth)
