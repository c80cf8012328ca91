"""Write docs/results.md and its plots from the cells: `python -m bench page`."""

import json
from pathlib import Path

import numpy as np

from bench import pace, plan, plots, scaling, tables, unique
from bench.cells import read
from bench.data import SEVEN
from bench.measure import RESULTS, machine

DOCS = Path(__file__).parents[1] / "docs"
READING = Path(__file__).with_name("reading.md")
SHOWN = ("nll", "rmse", "crps", "cover90", "width90", "fit", "predict", "memory")
OWN = ("triegp", "triegp-flagship")  # with coverage by predicted deviation
TIMES = RESULTS / "times.json"
REST = ("cover50", "cover99", "width50", "width99")


def command(*names):
    """The commands that run the cells of a table."""
    return ["", "Run: " + ", ".join(f"`python -m bench {name}`" for name in names), ""]


def least(metric):
    """A note under tables that show the minimum over the seeds."""
    if metric not in tables.LEAST:
        return []
    return ["", "Minimum over the seeds. `-` means: not stored."]


def sections():
    """The page, section by section, as lines."""
    peers = ("triegp", "triegp-flagship", plan.ON_DEVICE, "paper-bte", "paper-bt", *plan.PEERS)
    cells = [c for d in SEVEN for c in read("test", d, "triegp")]
    where = cells[0]["machine"] if cells else machine()
    gpus = {c["machine"].get("gpu") for d in SEVEN for m in peers for c in read("test", d, m)}
    gpu = ", ".join(sorted(filter(None, gpus))) or "none was used"
    yield [
        "# Results",
        "",
        "`python -m bench page` writes this page from `bench/results/cells`, which has one JSON file per",
        "**cell**, that is, per data set, method and seed. The command under a table runs its cells. Cells",
        "that exist are kept; `--again` runs them again.",
        "`python -m bench run DATA --methods METHOD --seeds SEED --again` runs a single cell.",
        "",
        "* Splits, seeds (0, 1, 2) and scores are those of the paper. 64 % of the rows are for training, 16 %",
        "  for validation (used for early stopping by the methods that have it) and 20 % for testing.",
        "* NLL, RMSE, CRPS and interval widths are on the standardised target. For NLL, RMSE and CRPS, lower",
        "  is better.",
        "* Tables show means over the seeds ± two standard errors. For times and memory they show the minimum",
        "  over the seeds, because the machines are shared with other work.",
        "* A cell may take at most ten minutes.",
        f"* Times are for {where['cpu']}, {where['cores']} cores, unless the method is marked GPU ({gpu}).",
        "  Compare times only within one machine.",
        "",
    ]
    yield [*READING.read_text().rstrip().splitlines(), ""]
    yield ["## The methods", "", *tables.methods_table(peers), *command("methods")]
    yield [
        "## Comparison with other methods",
        "",
        "The tables cover the seven data sets of the paper that were available. The best value of a column is",
        "bold. Quantile methods have no density and therefore no NLL. Their CRPS is a sum over the quantile",
        "levels that they predict. It is too low by about 5 % for seven levels, and by 0.3 % for the levels",
        "of the quantile forest.",
        "",
    ]
    for metric in SHOWN:
        title = tables.METRICS[metric][0]
        yield [
            f"### {title}",
            "",
            *tables.peers_table(metric, SEVEN, peers),
            *least(metric),
            *command("peers", "table1"),
        ]
    yield [
        "### Time per unit of quality",
        "",
        *quality_lines(SEVEN, peers),
        *command("peers", "table1"),
    ]
    yield ["### More on the intervals", ""]
    for metric in REST:
        title = tables.METRICS[metric][0]
        yield [f"{title}:", "", *tables.peers_table(metric, SEVEN, peers), ""]
    yield command("peers", "table1")[1:]
    fifths = tables.fifths_table(SEVEN, OWN)
    if fifths:
        yield [
            "### Coverage by predicted deviation",
            "",
            "The test rows are sorted by their predicted standard deviation and cut into fifths. The table shows",
            "the coverage of the 90 % interval in each fifth, in per cent, as means over the seeds.",
            "",
            *fifths,
            *command("peers"),
        ]
    yield [
        "## Large data sets",
        "",
        "Entries without a standard error are for one seed. The flagship is fitted to at most a million",
        "training rows: of the 1,920,000 of flights3m, a million are drawn at random. All other methods are",
        "given all rows.",
        "",
    ]
    for metric in ("nll", "rmse", "crps", "cover90", "fit", "predict", "memory"):
        rows = tables.peers_table(metric, plan.LARGE, plan.ON_LARGE)
        yield [f"### {tables.METRICS[metric][0]}", "", *rows, *least(metric), *command("large")]
    yield [
        "### Time per unit of quality",
        "",
        *quality_lines(plan.LARGE, plan.ON_LARGE),
        *command("large"),
    ]
    yield ["## The paper's Table 1", ""]
    for metric, title in (("nll", "NLL"), ("rmse", "RMSE"), ("minutes", "Minutes")):
        note = (
            " (paper: one V100; here: two CPU cores, minimum over the seeds)"
            if metric == "minutes"
            else ""
        )
        yield [f"{title}{note}:", "", *tables.paper_table(metric), ""]
    yield command("table1")[1:]
    yield [
        "## Run time against n",
        "",
        "The paper's figure with its trend lines, and the times of this package for the same protocol.",
        "",
        "![Run time of the paper's protocol against n](figures/runtime.svg)",
        *command("table1"),
    ]
    yield ["## Precision", "", *tables.precision_table(), *command("precision")]
    yield [
        "## Unique bit strings",
        "",
        "Percentages are of the training rows, seed 0. The paper's figures are in brackets.",
        "",
        *tables.unique_table(json.loads(unique.PATH.read_text())),
        *command("unique"),
    ]
    yield [
        "## ECDF",
        "",
        "The paper used ECDF scaling, with more bits, on 3DRoad, Song and Buzz, which were not available. The",
        "table uses two other data sets instead: those on which min-max scaling leaves the most rows with",
        "equal bit strings. NLL of the paper's mixture:",
        "",
        *tables.ecdf_table("nll"),
        "",
        "RMSE:",
        "",
        *tables.ecdf_table("rmse"),
        *command("ecdf"),
    ]
    yield [
        "## Simplex-GP",
        "",
        "The figures of the paper's table, and those of this package on the same splits. Simplex-GP itself",
        "was not run.",
        "",
        *tables.simplex_table(),
        *command("table1"),
    ]
    yield [
        "## Scaling",
        "",
        "Fit times in seconds, one run, on synthetic rows with 8 features. A method stops at the size at",
        "which a fit exceeds its limit of time or memory. Blank entries were not tried.",
        "",
        "![Fit time against n](figures/scaling.svg)",
        "",
        *scaling_table(),
        *command("scaling"),
    ]
    yield ["## Fit times of the defaults in one run", "", *times_section(), "", *pace_section()]
    yield [
        "## Ablation",
        "",
        "Validation NLL with one setting changed, minus that of the defaults. Positive means that the default",
        "is better.",
        "",
        *tables.ablation_table(),
        *command("ablation"),
    ]
    yield [
        "## The paper's schematic figures",
        "",
        "![A small tree and its kernel values](figures/tree.svg)",
        "![Functions drawn from the kernel at depths 0 to 4](figures/draws.svg)",
        "![A bit order as a map from the unit square to 8 bits](figures/order.svg)",
        "![An SROS matrix and its parts](figures/sros.svg)",
        *command("schematics"),
    ]


def quality_lines(data, methods):
    """Fit time beside quality, both relative to LightGBM's."""
    return [
        "What the time of a fit buys, relative to LightGBM with one variance. Methods are sorted by fit time.",
        "Gains are how much lower a score is than LightGBM's: NLL in nats per row, CRPS and RMSE in per cent;",
        "positive is better. A gain is bold if no method with a shorter fit has as much. Scores are means over",
        "the seeds, times minima. Methods without a density have no NLL. Rows marked GPU ran on another machine.",
        "",
        *tables.quality_table(data, methods),
    ]


def times_section():
    """Times next to LightGBM's, growth, and overhead beyond the likelihood."""
    if not TIMES.exists():
        return ["Not run."]
    found = json.loads(TIMES.read_text())
    timed = ("triegp", "lightgbm", "triegp_cpu", "lightgbm_cpu", "ratio")
    ratios = [[row["data"], *(f"{row[name]:.2f}" for name in timed)] for row in found["lightgbm"]]
    rows = [
        [f"{row['n']:,}", f"{row['fit']:.1f}", f"{row['evaluations']:,}"]
        for row in found["growth"]["rows"]
    ]
    overhead = ", ".join(f"{row['ratio']:.2f} at {row['n']:,} rows" for row in found["overhead"])
    return [
        "Median of three fits, alternating with LightGBM (settings as above), with nothing else on two cores of",
        f"an {found['lightgbm_machine']['cpu']}. The geometric mean of the ratio of their seconds is",
        f"{found['ratio']:.2f}.",
        "",
        *tables.table(
            ["data", "triegp, s", "LightGBM, s", "triegp, CPU s", "LightGBM, CPU s", "ratio"],
            ratios,
        ),
        "",
        f"Growth on synthetic rows of 8 features: n^{found['growth']['slope']:.2f}.",
        "",
        *tables.table(["rows", "fit, s", "evaluations"], rows),
        "",
        "Fit time divided by (evaluations x time of one evaluation with all cores busy / cores):",
        f"{overhead}.",
        "",
        "Run: `python -m bench.times`",
    ]


def pace_section():
    """Fits and predictions of the flagship beside LightGBM's fits, if they were measured."""
    if not pace.PATH.exists():
        return []
    found = json.loads(pace.PATH.read_text())
    head = ["rows", "fit, s", "CPU s", "GB", "LightGBM, s", "CPU s", "mean", "deviation"]
    more = ["one mean, ms", "one deviation, ms", "RMSE", "LightGBM, RMSE"]
    return [
        "`TrieGPRegressor()` beside LightGBM with 500 rounds: synthetic rows of eight features, an additive",
        "function with a jump, noise of deviation 0.2. Fits by turns, medians of three, a single one for a million",
        "rows; peak memory with the libraries (0.44 GB before the first fit); two cores of an",
        f"{found['machine']['cpu']}. Mean and deviation of new rows: CPU microseconds per row, the first block of",
        "10,000 rows after the fit / later blocks. RMSE is against the function, mean of the fits.",
        "",
        *tables.table([*head, *more], [pace_row(row) for row in found["rows"]]),
        "",
        "Run: `python -m bench pace`",
        "",
    ]


def pace_row(row):
    """One number of rows, as texts."""
    seconds = [row[key] for key in ("fit", "fit_cpu", "lightgbm", "lightgbm_cpu")]
    texts = [f"{value:.1f}" for value in seconds]
    texts.insert(2, f"{row['memory'] / 1e9:.2f}")
    texts += [f"{row['first_' + key]:.0f} / {row[key]:.0f}" for key in ("mean", "std")]
    texts += [f"{row[key]:.1f}" for key in ("one_mean", "one_std")]
    return [f"{row['n']:,}", *texts, *(f"{row[key]:.3f}" for key in ("rmse", "lightgbm_rmse"))]


def scaling_table():
    """Fit seconds by n and growth; prediction and memory at the largest n that worked."""
    found = scaling.read()
    rows = []
    for method in scaling.ALL:
        if method not in found:
            rows.append([method, *["not run"] * len(scaling.SIZES), "", "", ""])
            continue
        by_n = {row["n"]: row for row in found[method]}
        texts = []
        for n in scaling.SIZES:
            row = by_n.get(n)
            if row is None:
                texts.append("")
            elif row["status"] == "ok":
                texts.append(f"{row['fit_seconds']:.4g}")
            else:
                texts.append(ended(row))
        good = [row for row in found[method] if row["status"] == "ok"]
        grows = scaling.growth(found[method])
        last = good[-1] if good else {}
        gpu = last.get("machine", {}).get("gpu")
        memory = last.get("gpu_memory_peak" if gpu else "memory_peak")
        rows.append(
            [
                f"{method} (GPU)" if gpu else method,
                *texts,
                "" if grows is None else f"n^{grows:.2f}",
                f"{last['predict_seconds_per_million']:.1f}" if memory else "",
                f"{memory / 2**20:,.0f}" if memory else "",
            ]
        )
    head = ["", *(f"{n:,}" for n in scaling.SIZES), "growth from 10^4"]
    more = ("predict a million rows, s", "peak MiB (GPU: of the GPU)")
    return tables.table([*head, *more], rows)


def ended(row):
    """Text for a measurement that did not succeed."""
    if row["status"] == "time-out":
        return f"> {row['limit_s']:.0f}"
    return "no memory" if "memory" in row.get("note", "").lower() else "failed"


def main(folder=DOCS):
    lines = [line for section in sections() for line in section]
    text = "\n".join(lines).rstrip() + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    plots.main(folder / "figures")
    (folder / "results.md").write_text(text)
    print(folder / "results.md")


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
