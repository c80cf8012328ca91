"""Categories, dates and gaps in DataFrames, as each library takes them: `python -m bench tables`.

A cell is a table with a method and a seed: one JSON in bench/results/tables/PART/DATA/METHOD-SEED.
One fit serves the validation and the test part. Stored cells are not run again, failures are not
stored.
"""

import json
import time

from bench.cells import mean_error
from bench.distributions import score
from bench.frames_data import SYNTHETIC, TABLES, WITHOUT_GAPS, load
from bench.measure import RESULTS, machine
from bench.methods.frames import METHODS
from bench.methods.task import missing
from bench.plan import SEEDS
from bench.sources import DataError
from bench.tables import METRICS, table, with_error

FOLDER = RESULTS / "tables"
PARTS = ("valid", "test")
SHOWN = ("nll", "rmse", "crps", "cover90")


def path_of(part, data, method, seed):
    """File of a cell."""
    return FOLDER / part / data / f"{method}-{seed}.json"


def read(part, data, method, seeds=SEEDS):
    """{seed: stored cell}."""
    paths = {seed: path_of(part, data, method, seed) for seed in seeds}
    return {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}


def applies(method, data):
    """Whether a method is for a table: the known model is for synthetic ones only."""
    return method != "known-model" or data in SYNTHETIC


def run_cells(parts, data, method, seed, *, again=False):
    """{part: cell}, run if one of them is not stored; "status" is "ok" or what went wrong."""
    found = {part: read(part, data, method, [seed]).get(seed) for part in parts}
    if all(found.values()) and not again:
        return found
    names = {"data": data, "method": method, "seed": seed}
    if absent := missing(METHODS[method]):
        failure = {"status": "missing", "note": f"needs {', '.join(absent)}"}
        return {part: {**names, "part": part, **failure} for part in parts}
    try:
        scores = measure(parts, data, method, seed)
    except DataError as error:
        failure = {"status": "missing", "note": str(error)}
    except Exception as error:  # libraries raise errors of their own
        note = " ".join(str(error).split())
        failure = {"status": "error", "note": f"{type(error).__name__}: {note}"}
    else:
        cells = {part: {**names, "part": part, **scores[part]} for part in parts}
        for part, cell in cells.items():
            path = path_of(part, data, method, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(cell, indent=1) + "\n")
        return cells
    return {part: {**names, "part": part, **failure} for part in parts}


def measure(parts, data, method, seed):
    """Fit, predict and score; {part: scores and facts}."""
    task, frame, y = load(data, seed)
    rows = {"valid": (task.X_valid, task.y_valid), "test": (frame, y)}
    start = time.perf_counter()
    predict = METHODS[method].fit(task)
    facts = {
        "fit_seconds": time.perf_counter() - start,
        "n_train": len(task.y),
        "n_features": task.X.shape[1],
        "machine": machine(("pandas", *METHODS[method].needs)),
    }
    unit = task.y.std(ddof=1)
    return {
        part: {"status": "ok", **score(predict(X_new), y_new, unit), "n_new": len(y_new), **facts}
        for part, (X_new, y_new) in rows.items()
        if part in parts
    }


def line_of(cell):
    """A cell in one line."""
    head = f"{cell['part']} {cell['data']:18s} {cell['method']:20s} {cell['seed']} {cell['status']}"
    if cell["status"] != "ok":
        return f"{head} {cell['note']}"
    nll = "-" if cell["nll"] is None else f"{cell['nll']:.3f}"
    return (
        f"{head} nll {nll} rmse {cell['rmse']:.3f} crps {cell['crps']:.4f} "
        f"90 % {100 * cell['coverage']['90']:.1f} fit {cell['fit_seconds']:.1f} s"
    )


# Tables of what is stored


def entry(part, data, method, metric):
    """Text: mean over the seeds and two standard errors."""
    if not applies(method, data):
        return ""
    cells = read(part, data, method)
    if not cells:
        return "not run"
    _, pick, digits, _ = METRICS[metric]
    text = with_error(mean_error([pick(cell) for cell in cells.values()]), digits)
    return text + (f" ({len(cells)} of {len(SEEDS)} seeds)" if len(cells) < len(SEEDS) else "")


def metric_table(part, metric, data=tuple(TABLES), methods=tuple(METHODS)):
    """Methods by tables, as lines of Markdown."""
    rows = [[m, *(entry(part, d, m, metric) for d in data)] for m in methods]
    return table(["", *data], rows)


def gap_cost(part, data, method, metric):
    """Mean over the seeds of a score with gaps minus that of the same rows without, and error."""
    pick = METRICS[metric][1]
    gaps, whole = (read(part, d, method) for d in (data, WITHOUT_GAPS[data]))
    pairs = [(pick(gaps[seed]), pick(whole[seed])) for seed in gaps if seed in whole]
    return mean_error([one - other for one, other in pairs if one is not None])


def gaps_table(part, metric, methods=tuple(METHODS)):
    """What gaps cost each method."""
    digits = METRICS[metric][2]
    rows = [
        [m, *(with_error(gap_cost(part, d, m, metric), digits) for d in WITHOUT_GAPS)]
        for m in methods
        if all(applies(m, d) for d in WITHOUT_GAPS)
    ]
    return table(["", *WITHOUT_GAPS], rows)


def main(data=None, methods=None, seeds=SEEDS, parts=("test",), again=False):
    """Run cells, one line each, and print their tables."""
    data, methods = data or tuple(TABLES), methods or tuple(METHODS)
    for seed in seeds:
        for name in data:
            for method in methods:
                if applies(method, name):
                    for cell in run_cells(parts, name, method, seed, again=again).values():
                        print(line_of(cell), flush=True)
    for part in parts:
        for metric in SHOWN:
            print(f"\n{part}: {METRICS[metric][0]}\n")
            print("\n".join(metric_table(part, metric, data, methods)))
