"""Random small problems, from easy to hostile, for tests by two routes."""

from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np

import oracle
from triegp.encoding import Codes, pack_codes
from triegp.tree import BitOrder, random_bits
from triegp.tree.rows import Rows

SHAPES = ("spread", "clustered", "chain", "equal", "twins")


@dataclass(frozen=True)
class Problem:
    codes: Codes  # training rows
    new: Codes  # rows to predict
    order: BitOrder
    y: np.ndarray
    noise: float
    known: np.ndarray
    weight: np.ndarray  # small integers, not all 0
    rng: np.random.Generator

    @property
    def n(self):
        return self.codes.n_rows

    @property
    def bits(self):
        return oracle.unpack_bits(self.codes, self.order.key_bits)

    @property
    def new_bits(self):
        return oracle.unpack_bits(self.new, self.order.key_bits)

    @property
    def level_weights(self):
        return self.order.weights[: self.order.n_levels] * self.order.scale

    def kernel(self, a=None, b=None):
        a = self.bits if a is None else a
        return oracle.kernel(a, a if b is None else b, self.level_weights)

    def row_noise(self, known=True):
        return np.full(self.n, self.noise + self.order.nugget_variance) + self.known * known

    def covariance(self, known=True):
        return self.kernel() + np.diag(self.row_noise(known))


def make_problem(seed, n=20, n_new=8, precision=(3, 2), shape="spread", nugget="row"):
    rng = np.random.default_rng(seed)
    precision = np.array(precision)
    total = n + n_new
    raw = np.stack([rng.integers(0, 1 << int(p), total) for p in precision], axis=1)
    if shape == "clustered":  # deep keys: many shared leading bits
        raw >>= rng.integers(0, int(precision.max()), (total, 1))
    elif shape == "chain":  # 0, 1, 2, 4, 8, ...: one long chain
        raw[:, 0] = (1 << (np.arange(total) % (precision[0] + 1))) >> 1
        raw[:, 1:] = 0
    elif shape == "equal":
        raw[:] = raw[0]
    elif shape == "twins":
        raw[n // 2 : n] = raw[: n - n // 2]
    codes = pack_codes(raw, precision)
    weights = rng.exponential(size=codes.n_bits)
    weights *= rng.random(codes.n_bits) < 0.8  # some bits carry nothing
    weights[0] += 0.1
    order = BitOrder.from_weights(
        random_bits(precision, rng),
        weights / weights.sum(),
        scale=float(rng.uniform(0.5, 2.0)),
        nugget=nugget,
    )
    weight = rng.integers(0, 4, n).astype(float)
    weight[0] += 1
    return Problem(
        codes=take(codes, slice(0, n)),
        new=take(codes, slice(n, None)),
        order=order,
        y=rng.standard_normal(n),
        noise=0.05,
        known=rng.exponential(size=n),
        weight=weight,
        rng=rng,
    )


def take(codes, rows):
    return Codes(codes.packed[rows], codes.precision)


def plain_rows(y, noise):
    return Rows(y, noise=np.atleast_1d(np.asarray(noise, float)))


problems = st.builds(
    make_problem,
    seed=st.integers(0, 10_000),
    n=st.integers(1, 30),
    n_new=st.integers(1, 12),
    precision=st.sampled_from([(1,), (5,), (3, 2), (1, 1, 1, 1), (32, 32, 9), (31, 32, 32, 32, 8)]),
    shape=st.sampled_from(SHAPES),
    nugget=st.sampled_from(["row", "bit"]),
)
