"""The CUDA engine on a card: `python -m bench.card`, a few minutes; fills bench/results/card.

Times are medians after a first call that compiles. One evaluation is timed by the card's clock,
whole fits by the wall clock, and the first fit of each kind compiles. Two amounts of memory stand
beside each time, with the time each takes at the bandwidth of a copy measured in the same run: the
inputs, read once, which is a lower bound; and the traffic of the algorithm, with every pass of its
sorts.
"""

import argparse
import json
import time

import numpy as np
from sklearn.metrics import root_mean_squared_error

from bench.measure import RESULTS, machine
from triegp.metrics import nll

FOLDER = RESULTS / "card"
HOUSE = 1_311_539  # rows of HouseElec, the paper's largest data set
KIN = 25_600  # training rows of Kin40k
SIZES = ((HOUSE, 11), (10_000_000, 8), (100_000_000, 8))
PRECISION = 8
CANDIDATES = 480
MIXTURES = (100_000, 1_000_000, 10_000_000, 100_000_000)
NEW_ROWS = 1_000_000
SCORED = 100_000
LIMITS = {HOUSE: 3.0, 10_000_000: 15.0, 100_000_000: 200.0}  # milliseconds to stay under


def events(work, repeats):
    """Median milliseconds between two events of the card around the work."""
    import cupy

    for _ in range(2):
        work()
    found = []
    for _ in range(repeats):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(begin, end))
    return float(np.median(found))


def bandwidth():
    """Bytes per second of a large copy, read and written."""
    import cupy

    a, b = cupy.ones(1 << 28), cupy.empty(1 << 28)
    return 2e3 * a.nbytes / events(lambda: cupy.copyto(b, a), 10)


def orders(d, count, seed=0):
    """Random orders of d features with 8 bits each, half of the variance in the nugget."""
    from triegp.tree import BitOrder, random_bits, uniform_weights

    rng, precision = np.random.default_rng(seed), np.full(d, PRECISION)
    weights = uniform_weights(d * PRECISION, last=0.5)
    return [BitOrder.from_weights(random_bits(precision, rng), weights) for _ in range(count)]


def traffic(n_places, width, n_levels, n_members):
    """Bytes through memory of one evaluation with gradient, each array once per stage.

    A radix sort of w-byte words with 8-byte places reads and writes both once per byte of the word.
    """
    member_bits = (n_members - 1).bit_length()
    lead = min(n_levels, 64 - member_bits)
    chunks = [lead + member_bits]
    chunks += [min(64, n_levels - at) for at in range(lead, n_levels, 64)]
    total = 0
    for k, bits in enumerate(reversed(chunks)):
        word = next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
        total += width + word + (8 if k else 0)  # words from codes, in the order so far
        total += word * 2 * (word + 8)
    total += 8 + 8 + 4 + 4  # places and words in, rows and ranks out
    total += 3 * 4 + 2 * 4  # the plan: ranks in, partners and rounds out; partners in and out
    total += 2 * (4 * 4 + 8)  # up and down: ranks, partners, rounds, rows and targets
    return total * n_places


def evaluation(n, d, n_members, repeats):
    """Likelihood and gradient with new keys and sort, of one order or of a batch."""
    import cupy

    from triegp.engines import Candidate
    from triegp.engines.cuda import CudaEngine

    engine, pool = CudaEngine(), cupy.get_default_memory_pool()
    pool.free_all_blocks()
    packed = cupy.random.randint(0, 256, (n, d), dtype=cupy.uint8)
    y, variance = cupy.random.standard_normal(n), cupy.full(1, 0.5)
    candidates = [
        Candidate(packed, order.key_bits, order.levels, y, variance)
        for order in orders(d, n_members)
    ]
    pool.free_all_blocks()
    given = pool.used_bytes()
    work = lambda: engine.evaluate_many(candidates, np.dtype(float), True)  # noqa: E731
    took = events(work, repeats)
    moved = traffic(n * n_members, d, d * PRECISION - 1, n_members)
    return {
        "n": n,
        "d": d,
        "members": n_members,
        "milliseconds": took,
        "bytes_a_row": moved / (n * n_members),
        "given_bytes_a_row": given / n,
        "peak_bytes_a_row": pool.total_bytes() / (n * n_members),
        "bytes": moved,
        "input_bytes": n * (d + 8),
    }


def product(n, n_trees, n_columns, repeats=5):
    """One product with the sum of many trees."""
    import cupy

    from triegp.engines import Tree
    from triegp.engines.cuda import CudaEngine

    engine = CudaEngine()
    packed = cupy.random.randint(0, 256, (n, 8), dtype=cupy.uint8)
    trees = []
    for order in orders(8, n_trees, seed=1):
        row_idx, lcp = engine.sort_rows(packed, order.key_bits)
        links = engine.link(lcp, order.n_levels, np.zeros(1, np.int64))
        trees.append(Tree(row_idx, links, order.levels))
    trees = engine.plant(trees)
    x = cupy.random.standard_normal((n, n_columns))
    # A tree: rows in twice and out once, added up once; ranks, partners and rounds twice.
    moved = n * n_trees * (4 * 8 * n_columns + 2 * 4 * 4)
    return {
        "n": n,
        "trees": n_trees,
        "columns": n_columns,
        "milliseconds": events(lambda: engine.sum_products(trees, x), repeats),
        "level_products_milliseconds": events(lambda: engine.sum_level_products(trees, x, x), 3),
        "bytes": moved,
        "input_bytes": n * 8 * n_columns,
    }


def synthetic(n, d, seed=0):
    """Rows with a smooth function of three features and noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(n)


def protocol(n, d, rows=None):
    """The paper's whole protocol: 480 starts, 20 BFGS fits, their posteriors."""
    return fit(n, d, "cuda", rows, preset="paper-bte", precision=PRECISION)


def fit(n, d, engine, rows=None, **parameters):
    """Seconds of a fit to synthetic rows or those given, and the evaluations it took."""
    from triegp import BinaryTreeGPRegressor

    X, y = rows or synthetic(n, d)
    model = BinaryTreeGPRegressor(engine=engine, random_state=0, **parameters)
    begin = time.perf_counter()
    model.fit(X, y)
    took = time.perf_counter() - begin
    found = {"n": n, "d": d, "engine": engine, "seconds": took, **parameters}
    return {**found, "evaluations": model.n_evaluations_}


def wall(work, repeats=5):
    """Median seconds by the wall clock, with all work of the card done; the first call compiles."""
    import cupy

    found = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        found.append(time.perf_counter() - begin)
    return float(np.median(found[1:]))


def mixture(n):
    """A fit of the default mixture, and a million predictions of rows on the host and on the card.

    The time of the fit is that of the only one, after smaller ones have compiled all kernels.
    """
    import cupy

    from triegp import BinaryTreeGPRegressor

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    X, y = synthetic(n, 8)
    model = BinaryTreeGPRegressor(engine="cuda", random_state=0)
    begin = time.perf_counter()
    model.fit(X, y)
    took = time.perf_counter() - begin
    del X, y
    (ensemble,) = model.ensembles_
    found = {
        "n": n,
        "seconds": took,
        "members": len(ensemble.members),
        "evaluations": model.n_evaluations_,
        "model_bytes": pool.used_bytes(),
        "peak_bytes": pool.total_bytes(),
    }
    new, target = synthetic(NEW_ROWS, 8, seed=1)
    asked = {
        "mean": model.predict,
        "std": lambda rows: model.predict(rows, return_std=True),
        "interval": model.predict_interval,
        "distribution": model.predict_distribution,
    }
    for where, rows in (("host", new), ("card", cupy.asarray(new))):
        for name, ask in asked.items():
            found[f"{name}_seconds_{where}"] = wall(lambda ask=ask, rows=rows: ask(rows))
    found["rmse"] = root_mean_squared_error(target, model.predict(new))
    found["nll"] = nll(target[:SCORED], model.predict_distribution(new[:SCORED]))
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    options = parser.parse_args(arguments)
    rate = bandwidth()
    print(f"copy: {rate / 1e12:.2f} TB/s", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part in options.only:
        rows = []
        for row in PARTS[part]():
            if "bytes" in row:
                row["floor_milliseconds"] = 1e3 * row["bytes"] / rate
                row["over_floor"] = row["milliseconds"] / row["floor_milliseconds"]
                row["input_milliseconds"] = 1e3 * row["input_bytes"] / rate
            print(part, row, flush=True)
            rows.append(row)
        found = {"copy_bytes_a_second": rate, "machine": card_machine(), "rows": rows}
        (FOLDER / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")


def card_machine():
    import cupy
    import numba_cuda

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = {"cupy": cupy.__version__, "numba-cuda": numba_cuda.__version__}
    return {**machine(), "gpu": name, **versions}


def evaluations():
    for n, d in SIZES:
        yield {**evaluation(n, d, 1, 5 if n > HOUSE * 10 else 20), "limit": LIMITS[n]}
    yield {**evaluation(KIN, 8, CANDIDATES, 10), "limit": 60.0}
    yield evaluation(KIN, 8, 1, 20)
    yield evaluation(KIN, 8, 20, 20)


def products():
    yield product(10_000, 64, 8)
    yield {**product(1_000_000, 64, 16), "limit": 100.0}


def protocols():
    from bench.data import load

    protocol(2_000, 8)  # compiles
    ((X, y),) = load("kin40k", 0, "train")
    yield {"data": "kin40k", **protocol(*X.shape, (X, y)), "limit_seconds": 3.0}
    yield {**protocol(KIN, 8), "limit_seconds": 3.0}
    yield {**protocol(HOUSE, 11), "limit_seconds": 60.0}


def fits():
    """The defaults on both engines, to find the n from which the card is faster."""
    for n in (1_000, 10_000, 100_000):
        for engine in ("cpu", "cuda"):
            yield fit(n, 8, engine)


def mixtures():
    """The mixture from 10^5 to 10^8 rows; two smaller fits compile, for both types of messages."""
    for n in (200_000, 2_100_000):
        mixture(n)
    for n in MIXTURES:
        yield mixture(n)


PARTS = {
    "evaluations": evaluations,
    "products": products,
    "protocols": protocols,
    "fits": fits,
    "mixtures": mixtures,
}


if __name__ == "__main__":
    main()
