"""Conversion of the smooth part to a header and flat arrays, and back.

A file holds inputs, kernel, inducing rows and the order of the rows. Projections and neighbours
follow from these and are computed again when they are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.additive.conditioning import make_smooth
from triegp.checks import boolean, one_of, positive_number, whole_number
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine, available_cores
from triegp.files.contents import check_array, check_memory
from triegp.smooth.coordinates import N_KNOTS, Coordinates
from triegp.smooth.dense import Dense, make_dense
from triegp.smooth.division import MOST_ROWS
from triegp.smooth.induced import Induced
from triegp.smooth.interface import HostSmooth
from triegp.smooth.kernel import KERNELS, Kernel
from triegp.smooth.linear import Linear

Arrays = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]

COORDINATES = ("features", "center", "spread", "ranked", "knots", "ranks")
LARGEST = 1e30
MOST_NEIGHBOURS, MOST_INDUCING = 512, 2048  # work grows with their cubes; a fit takes 512, 1,024


def pack_smooth(smooth: HostSmooth) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a smooth part; its inputs are those of the model."""
    kernel = smooth.induced.kernel if isinstance(smooth, Linear) else smooth.kernel
    facts = {"kernel": kernel.name, "scale": kernel.scale, "dense": isinstance(smooth, Dense)}
    arrays: Arrays = {"lengthscale": kernel.lengthscale}
    facts["gain"] = 1.0
    if isinstance(smooth, Linear):
        induced = smooth.induced
        facts["gain"] = smooth.gain
        facts |= {"n_neighbours": induced.n_neighbours, "single": induced.single}
        arrays |= {"order": induced.order, "inducing": induced.inducing, "starts": induced.starts}
    return facts, arrays


def follows_older(facts: Any) -> bool:
    """Whether a smooth part came of neighbours of single rows, up to format version 7.

    It is made again, by blocks, and the model is solved again.
    """
    return facts is not None and "seed" in facts and not facts["dense"]


def unpack_smooth(facts: Any, arrays: Arrays, prefix: str, inputs: Floats) -> HostSmooth:
    """Restore a smooth part over rows with these inputs; raises ValueError if it is invalid."""
    n, p = inputs.shape
    length = _positive(arrays, f"{prefix}.lengthscale", (p,))
    scale, gain = (_ordinary(name, facts[name]) for name in ("scale", "gain"))
    kernel = Kernel(one_of("kernel", facts["kernel"], KERNELS), length, scale)
    with np.errstate(over="ignore"):
        reach = np.square(inputs / length).sum(axis=1).max()
    if not reach < LARGEST:
        raise ValueError(f"inputs over lengthscales must be below {np.sqrt(LARGEST):g} in size")
    if boolean("dense", facts["dense"]):
        return make_dense(kernel, inputs / length, keep=False)
    if follows_older(facts):
        seed = whole_number("seed", facts["seed"], 0)
        made = make_smooth(kernel.rescaled(gain), inputs, seed, CpuEngine())
        assert made is not None
        return made
    order = check_array(arrays, f"{prefix}.order", np.int64, (n,))
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise ValueError(f"{prefix}.order must be a permutation of {n} rows")
    inducing = check_array(arrays, f"{prefix}.inducing", np.int64, (None,), least=0)
    if inducing.size and not (inducing.min() >= 0 and inducing.max() < n):
        raise ValueError(f"{prefix}.inducing must be rows below {n}")
    if np.unique(inducing).size != inducing.size:
        raise ValueError(f"{prefix}.inducing must not repeat a row")
    n_neighbours = whole_number("n_neighbours", facts["n_neighbours"], 0)
    if n_neighbours > MOST_NEIGHBOURS or inducing.size > MOST_INDUCING:
        raise ValueError(
            f"a smooth part must have at most {MOST_NEIGHBOURS} neighbours and {MOST_INDUCING} "
            f"inducing rows, got {n_neighbours} and {inducing.size}"
        )
    starts = check_array(arrays, f"{prefix}.starts", np.int64, (None,), least=2)
    sizes = np.diff(starts)
    if starts[0] != 0 or starts[-1] != n or not (sizes.min() > 0 and sizes.max() <= MOST_ROWS):
        raise ValueError(f"{prefix}.starts must cut {n} rows into blocks of at most {MOST_ROWS}")
    check_memory(8 * n * (inducing.size + n_neighbours))
    single, cores = boolean("single", facts["single"]), available_cores()
    rows = (kernel, inputs, order, starts, inducing)
    return Linear(Induced(*rows, n_neighbours, single, cores), gain)


def unpack_coordinates(arrays: Arrays, prefix: str, encoder: Quantiser) -> Coordinates:
    """Restore coordinates of the features of an encoder; raises ValueError if they are invalid."""
    n_features = encoder.n_working
    found = {}
    for name in ("features", "ranked"):
        which = check_array(arrays, f"{prefix}.{name}", np.int64, (None,), least=0)
        if which.size and not (which.min() >= 0 and which.max() < n_features):
            raise ValueError(f"{prefix}.{name} must be features below {n_features}")
        if (np.diff(which) <= 0).any():
            raise ValueError(f"{prefix}.{name} must rise")
        found[name] = which
    a, b = found["features"].size, found["ranked"].size
    found["center"] = check_array(arrays, f"{prefix}.center", np.float64, (a,))
    found["spread"] = _positive(arrays, f"{prefix}.spread", (a,))
    for name in ("knots", "ranks"):
        table = check_array(arrays, f"{prefix}.{name}", np.float64, (b, N_KNOTS))
        if (np.diff(table, axis=1) < 0).any():
            raise ValueError(f"{prefix}.{name} must not decrease")
        found[name] = table
    box = np.stack([encoder.low_, encoder.high_])[:, found["features"]]
    with np.errstate(over="ignore"):
        reach = np.abs(box - found["center"]) / found["spread"]
    if not (reach < LARGEST).all() or not (np.abs(found["ranks"]) < LARGEST).all():
        raise ValueError(f"{prefix}: coordinates of the box must be below {LARGEST:g} in size")
    return Coordinates(**found)


def _ordinary(name: str, value: Any) -> float:
    number = positive_number(name, value)
    if not 1.0 / LARGEST < number < LARGEST:
        raise ValueError(f"{name} must lie between {1.0 / LARGEST:g} and {LARGEST:g}, got {number}")
    return number


def _positive(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> Floats:
    values = check_array(arrays, name, np.float64, shape)
    if not ((values > 1.0 / LARGEST) & (values < LARGEST)).all():
        raise ValueError(f"{name} must lie between {1.0 / LARGEST:g} and {LARGEST:g}")
    return values
