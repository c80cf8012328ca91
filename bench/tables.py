"""Tables of the results page, as lines of Markdown, from the cells that are there."""

import numpy as np

from bench import paper, plan
from bench.cells import mean_error, read
from bench.data import SEVEN
from bench.methods import METHODS
from bench.methods.trees import ABLATIONS, PRECISIONS, RAISED


def _part(of, level, scale=1):
    """Picks a coverage or a width, if the cell has stored it."""

    def pick(cell):
        value = cell[of][level]
        return None if value is None else scale * value

    return pick


def _mebibytes(cell):
    """Peak memory of the process, or of the GPU if the work ran there."""
    found = cell["gpu_memory_peak" if cell["machine"].get("gpu") else "memory_peak"]
    return None if found is None else found / 2**20


# metric: (title, how to get it from a cell, digits, whether less is better)
METRICS = {
    "nll": ("NLL", lambda c: c["nll"], 3, True),
    "rmse": ("RMSE", lambda c: c["rmse"], 3, True),
    "crps": ("CRPS", lambda c: c["crps"], 4, True),
    "cover50": ("Coverage of the 50 % interval, %", _part("coverage", "50", 100), 1, None),
    "cover90": ("Coverage of the 90 % interval, %", _part("coverage", "90", 100), 1, None),
    "cover99": ("Coverage of the 99 % interval, %", _part("coverage", "99", 100), 1, None),
    "width50": ("Mean width of the 50 % interval", _part("width", "50"), 3, None),
    "width90": ("Mean width of the 90 % interval", _part("width", "90"), 3, None),
    "width99": ("Mean width of the 99 % interval", _part("width", "99"), 3, None),
    "fit": ("Fit, seconds", lambda c: c["fit_seconds"], 1, None),
    "predict": (
        "Prediction, seconds per million rows",
        lambda c: c["predict_seconds_per_million"],
        1,
        None,
    ),
    "memory": (
        "Peak memory of the process (of the GPU, for rows marked GPU), MiB",
        _mebibytes,
        0,
        None,
    ),
}
LEAST = ("fit", "predict", "memory")  # shown as minimum: other work only adds to these


COARSE = ("lightgbm-quantiles",)  # its CRPS is too low: only seven levels


def _less(value, base):
    """By how much a score is lower, in its own units, and as text."""
    return base - value, f"{base - value:+.3f}"


def _less_percent(value, base):
    """By how much a score is lower, in per cent, and as text."""
    gain = 100 * (base - value) / base
    return gain, f"{gain:+.1f} %"


GAINS = {"nll": _less, "crps": _less_percent, "rmse": _less_percent}


def table(head, rows):
    """Markdown lines."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def with_error(found, digits=3):
    """Mean and two standard errors, as text."""
    if found is None:
        return "-"
    mean, error = found
    if error is None or np.isnan(error):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def state(cells):
    """Text for a table entry without a number."""
    if not cells:
        return "not run"
    return {"time-out": "time-out", "error": "failed"}.get(cells[0]["status"], "-")


def values(cells, pick):
    """One number per cell that succeeded and has it."""
    found = (pick(cell) for cell in cells if cell["status"] == "ok")
    return [value for value in found if value is not None]


def summary(cells, metric, scale=1.0):
    """Entry of a table: mean and two standard errors, or the minimum."""
    found = [value / scale for value in values(cells, METRICS[metric][1])]
    if metric in LEAST:
        return (min(found), None) if found else None
    return mean_error(found)


def failures(cells):
    """How many cells failed, and how, in brackets."""
    bad = [cell["status"] for cell in cells if cell["status"] != "ok"]
    counts = [f"{bad.count(status)} {status}" for status in sorted(set(bad))]
    return f" ({', '.join(counts)})" if counts else ""


def fewer(cells, metric):
    """Number of seeds of a mean, in brackets, if some were not run or did not store the metric."""
    known = len(values(cells, METRICS[metric][1]))
    bad = sum(cell["status"] != "ok" for cell in cells)
    if metric in LEAST or known == 1 or known + bad >= len(plan.SEEDS):
        return ""  # one seed has no standard error, and failures have their own brackets
    return f" ({known} seeds)"


def peers_table(metric, data, methods, part="test"):
    """Methods by data sets, one metric; the best of each column in bold."""
    _, _, digits, less = METRICS[metric]
    grid = {m: {d: summary(read(part, d, m), metric) for d in data} for m in methods}
    coarse = COARSE if metric == "crps" else ()
    best = {}
    for d in data:
        known = [grid[m][d][0] for m in methods if grid[m][d] is not None and m not in coarse]
        best[d] = min(known) if known and less else None
    rows = []
    for m in methods:
        texts = [_mark([cell for d in data for cell in read(part, d, m)], m)]
        for d in data:
            found = grid[m][d]
            if found is None:
                texts.append(state(read(part, d, m)))
                continue
            text = with_error(found, digits)
            bold = less and m not in coarse and round(found[0], digits) == round(best[d], digits)
            cells = read(part, d, m)
            text = f"**{text}**" if bold else text
            texts.append(text + fewer(cells, metric) + failures(cells))
        rows.append(texts)
    return table(["", *data], rows)


def quality_table(data, methods, base="lightgbm", part="test"):
    """Fit time beside quality, both relative to those of `base`; methods by fit time.

    A gain is bold if no method with a shorter fit has as much.
    """
    rows = []
    for d in data:
        cells = {m: read(part, d, m) for m in methods}
        found = {m: {k: summary(cells[m], k) for k in ("fit", *GAINS)} for m in methods}
        known = [m for m in methods if found[m]["fit"] is not None]
        if found[base]["fit"] is None:
            continue
        best = dict.fromkeys(GAINS, -np.inf)
        for m in sorted(known, key=lambda m: found[m]["fit"][0]):
            fit, shortest = found[m]["fit"][0], found[base]["fit"][0]
            texts = [d, _mark(cells[m], m), f"{fit:.1f}", f"{fit / shortest:.1f}"]
            for metric, gain_of in GAINS.items():
                if found[m][metric] is None or found[base][metric] is None:
                    texts.append("-")
                    continue
                gain, text = gain_of(found[m][metric][0], found[base][metric][0])
                coarse = metric == "crps" and m in COARSE
                texts.append(f"**{text}**" if gain > best[metric] and not coarse else text)
                best[metric] = best[metric] if coarse else max(best[metric], gain)
            rows.append(texts)
    head = ["data", "method", "fit, s", f"fit / {base}'s", "NLL gain", "CRPS gain", "RMSE gain"]
    return table(head, rows)


def fifths_table(data, methods, part="test"):
    """Coverage of the 90 % interval by fifth of the predicted deviation; empty if none is stored.

    Cells measured before fifths were stored do not count.
    """
    rows = []
    for d in data:
        for m in methods:
            cells = read(part, d, m)
            known = [cell for cell in cells if cell["status"] == "ok" and cell.get("fifths")]
            if not known:
                continue
            seeds = "" if len(known) == len(cells) else f" ({len(known)} of {len(cells)} seeds)"
            found = 100 * np.mean([cell["fifths"] for cell in known], axis=0)
            rows.append([d, m + seeds, *(f"{value:.1f}" for value in found)])
    head = ["data", "method", "smallest deviations", "second", "third", "fourth", "largest"]
    return table(head, rows) if rows else []


def _mark(cells, method):
    """The method's name, marked if it ran on a GPU."""
    gpu = [bool(cell["machine"].get("gpu")) for cell in cells if cell["status"] == "ok"]
    if not any(gpu):
        return method
    return f"{method} (GPU)" if all(gpu) else f"{method} (some on a GPU)"


def paper_table(metric, methods=(("BTE", "paper-bte"), ("BT", "paper-bt")), name="table1"):
    """The paper's figures beside ours."""
    ours_metric, scale = ("fit", 60.0) if metric == "minutes" else (metric, 1.0)
    head, rows = ["data"], []
    for theirs, _ in methods:
        head += [f"{theirs}: paper", "here"]
    for d in SEVEN:
        row = [d]
        for theirs, ours in methods:
            published = paper.figure(name, d, theirs, metric)
            found = summary(read("test", d, ours), ours_metric, scale)
            row += [with_error(published), with_error(found)]
        rows.append(row)
    return table(head, rows)


def precision_table():
    """NLL of the paper's methods by precision."""
    pairs = [(f"BTE p={p}", f"paper-bte-p{p}") for p in PRECISIONS]
    pairs += [(f"BT p={p}", f"paper-bt-p{p}") for p in PRECISIONS]
    return paper_table("nll", pairs, "precision")


def ecdf_table(metric):
    """The paper's mixture by scaling, with the same bits and with more."""
    head = ["", "min-max", "ECDF", "ECDF, more bits", "bits per feature"]
    rows = []
    for d, raised in plan.ECDF_RAISED.items():
        texts = []
        for m in (*plan.ECDF, raised):
            cells = read("test", d, m)
            found = summary(cells, metric)
            texts.append(state(cells) if found is None else with_error(found) + failures(cells))
        rows.append([d, *texts, str(RAISED[d])])
    return table(head, rows)


def simplex_table():
    """The paper's comparison with Simplex-GP, and our three rows."""
    data = [d for d in SEVEN if paper.figure("simplex", d, "Simplex-GP", "nll")]
    theirs = ("Simplex-GP", "Matern-BBMM", "SGPR", "SVGP", "BT", "BTE")
    rows = [
        [f"paper: {m}", *(with_error(paper.figure("simplex", d, m, "nll")) for d in data)]
        for m in theirs
    ]
    for m in plan.OURS[::-1]:
        found = [summary(read("test", d, m), "nll") for d in data]
        rows.append([f"here: {m}", *map(with_error, found)])
    return table(["NLL", *data], rows)


def unique_table(rows):
    """Unique bit strings, the paper's in brackets."""

    def both(value, published, key):
        text = (published or {}).get(key)
        return f"{value:.1f} ({text})" if text else f"{value:.1f}"

    lines = []
    for row in rows:
        published = paper.UNIQUE.get(paper.NAMES.get(row["data"]))
        lines.append(
            [
                row["data"],
                f"{row['n']:,}",
                str(row["p"]),
                both(row["rows"], published, "pct_unique_rows"),
                both(row["bits"], published, "pct_unique_bits"),
                f"{both(row['bits_ecdf'], published, 'pct_unique_bits_ecdf')}, p = {row['p_new']}",
            ]
        )
    return table(
        ["data", "rows", "p", "unique rows, %", "unique bit strings, %", "after ECDF, %"], lines
    )


def ablation_table():
    """Validation NLL with one setting changed, minus that of the defaults."""
    pick = METRICS["nll"][1]
    base = {
        d: {c["seed"]: c for c in read("valid", d, "triegp") if c["status"] == "ok"} for d in SEVEN
    }
    defaults = [_short([pick(c) for c in base[d].values()]) for d in SEVEN]
    rows = [["defaults", *defaults, "", _span([len(base[d]) for d in SEVEN])]]
    for name in ABLATIONS:
        gains, counts = [], []
        for d in SEVEN:
            cells = [c for c in read("valid", d, f"triegp, {name}") if c["status"] == "ok"]
            pairs = [pick(c) - pick(base[d][c["seed"]]) for c in cells if c["seed"] in base[d]]
            gains.append(np.mean(pairs) if pairs else None)
            counts.append(len(pairs))
        known = [g for g in gains if g is not None]
        texts = ["not run" if g is None else f"{g:+.3f}" for g in gains]
        mean = f"{np.mean(known):+.3f}" if known else "-"
        rows.append([name, *texts, mean, _span(counts)])
    return table(["", *SEVEN, "mean", "seeds"], rows)


def _short(numbers):
    return f"{np.mean(numbers):.3f}" if numbers else "not run"


def _span(counts):
    """Smallest and largest number of seeds, over the data sets that have any."""
    counts = sorted({count for count in counts if count})
    return " to ".join(str(count) for count in dict.fromkeys(counts[:1] + counts[-1:]))


def methods_table(methods):
    """What each method is, and with which version."""
    rows = []
    for m in methods:
        cells = [c for d in (*SEVEN, *plan.LARGE) for c in read("test", d, m)]
        versions = cells[0]["machine"] if cells else {}
        needs = METHODS[m].needs
        text = ", ".join(f"{k} {versions.get(k) or ''}".strip() for k in needs)
        most = METHODS[m].most_rows
        about = METHODS[m].about + (f", at most {most:,} training rows" if most else "")
        rows.append([m, about, text if cells or not needs else f"{text} (not run)"])
    return table(["method", "settings", "versions"], rows)
