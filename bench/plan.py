"""Which cells make which table."""

from itertools import product

from bench.data import SEVEN
from bench.methods.trees import ABLATIONS, PRECISIONS, RAISED

SEEDS = (0, 1, 2)
LARGE = ("houseelectric_2007h1", "etopo20", "flights3m", "blogfeedback")
SMALL = ("yacht", "energy")

OURS = ("triegp", "paper-bte", "triegp-flagship", "paper-bt")
ON_DEVICE = "triegp-flagship-cuda"
PEERS = (
    "lightgbm",
    "lightgbm-quantiles",
    "catboost",
    "ngboost",
    "quantile-forest",
    "sklearn-gp",
    "gpytorch-exact",
    "gpytorch-bbmm",
    "gpytorch-sgpr",
    "gpytorch-svgp",
)
ON_LARGE = ("triegp", "triegp-flagship", "lightgbm", "sklearn-gp", "gpytorch-svgp", "gpytorch-sgpr")

ECDF = ("paper-bte", "paper-bte-secdf")
ECDF_RAISED = {d: f"paper-bte-secdf-p{p}" for d, p in RAISED.items()}

TABLES = {
    # name: (part, data, methods, seeds)
    "table1": ("test", SEVEN, ("paper-bte", "paper-bt"), SEEDS),
    "peers": ("test", SEVEN, ("triegp", "triegp-flagship", ON_DEVICE, *PEERS), SEEDS),
    "large": ("test", LARGE, ON_LARGE, SEEDS),
    "precision": ("test", SEVEN, tuple(f"paper-bte-p{p}" for p in PRECISIONS), SEEDS),
    "ecdf": ("test", tuple(RAISED), (*ECDF, *ECDF_RAISED.values()), SEEDS),
    "ablation": ("valid", SEVEN, ("triegp", *(f"triegp, {name}" for name in ABLATIONS)), SEEDS),
}


def cells_of(table):
    """(part, data, method, seed) of a table, in the order in which they are worth having."""
    part, data, methods, seeds = TABLES[table]
    only = {m: d for d, m in ECDF_RAISED.items()}  # its precision is for one data set
    wanted = product(methods, seeds, data)
    return [(part, d, m, s) for m, s, d in wanted if only.get(m, d) == d]
