"""Synthetic rows of a given shape, made as packed codes in blocks so that 10^7 fit in memory."""

import numpy as np

from triegp.encoding import Codes, pack_codes
from triegp.tree import BitOrder, random_bits, uniform_weights

SHAPES = ((11, 8), (3, 16), (77, 3), (385, 1))
KINDS = ("uniform", "clustered")
BLOCK = 200_000
N_CLUSTERS = 100


def make_codes(kind, n, d, p, seed=0):
    """n rows of d features of p bits: uniform, or in 100 tight clusters of unequal size."""
    rng = np.random.default_rng(seed)
    precision = np.full(d, p)
    if kind == "uniform":
        packed = rng.integers(0, 256, (n, -(-d * p // 8)), dtype=np.uint8)
        packed[:, -1] &= 256 - (1 << (-d * p % 8))
        return Codes(packed, precision)
    centres = rng.random((N_CLUSTERS, d))
    share = rng.dirichlet(np.full(N_CLUSTERS, 0.5))
    blocks = []
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        at = centres[rng.choice(N_CLUSTERS, size, p=share)]
        at = at + 0.01 * rng.standard_normal((size, d), dtype=np.float32)
        codes = np.clip(at * 2**p, 0, 2**p - 1).astype(np.uint32)
        blocks.append(pack_codes(codes, precision).packed)
    return Codes(np.concatenate(blocks), precision)


def make_problem(kind, n, d, p, seed=0):
    """Codes, a random order with uniform weights, targets."""
    rng = np.random.default_rng(seed + 1)
    codes = make_codes(kind, n, d, p, seed)
    order = BitOrder.from_weights(random_bits(codes.precision, rng), uniform_weights(d * p))
    return codes, order, rng.standard_normal(n)
