"""Write docs/tables_results.md from the stored cells: `python -m bench tables --page`."""

from pathlib import Path

from bench import frames
from bench.frames_data import TABLES
from bench.methods.frames import METHODS
from bench.tables import METRICS, table

DOCS = Path(__file__).parents[1] / "docs"
NOTES = {
    "nll": "`-` means: no density. `lightgbm-quantiles` predicts quantiles only.",
    "crps": "That of `lightgbm-quantiles` is too low, because it has only seven levels.",
}


def sections():
    """The page, section by section, as lines."""
    yield [
        "# Tables with categories, dates and gaps",
        "",
        "`python -m bench tables --page` writes this page from `bench/results/tables`, which has one JSON file",
        "per table, method and seed. `python -m bench tables` runs those that are not stored, and",
        "`python -m bench tables --data DATA --methods METHOD --seeds SEED --again` runs one of them again.",
        "",
        "* Each library gets a pandas DataFrame and handles categories and missing values itself.",
        "* Rows are split at random by seed (0, 1, 2): 64 % for training, 16 % for validation (used for early",
        "  stopping by the methods that have it) and 20 % for testing, at most 20,000 rows. Of `flights` at most",
        "  100,000 training rows are used, of `house` at most 50,000.",
        "* NLL, RMSE and CRPS are on the standardised target, and lower is better.",
        "* Figures are means over the seeds ± two standard errors, on the test part.",
        "* `known-model` is a bound: no method can expect a lower NLL, because it knows the model that the",
        "  synthetic rows were drawn from, except the effects and slopes of the labels.",
        "",
    ]
    yield ["## Tables", "", *table(["table", "what"], [[t.name, t.about] for t in TABLES.values()])]
    yield ["", "## Methods", "", *methods_table()]
    for metric in frames.SHOWN:
        note = [NOTES[metric], ""] if metric in NOTES else []
        lines = frames.metric_table("test", metric)
        yield ["", f"## {METRICS[metric][0]}", "", *note, *lines]
    yield [
        "",
        "## What 20 % gaps cost",
        "",
        "NLL with gaps minus NLL without, on the same rows, mean over the seeds:",
        "",
        *frames.gaps_table("test", "nll"),
        "",
        "CRPS with gaps minus CRPS without:",
        "",
        *frames.gaps_table("test", "crps"),
    ]


def methods_table():
    """Settings and versions of the methods that are stored."""
    rows = []
    for name, method in METHODS.items():
        cells = [cell for d in TABLES for cell in frames.read("test", d, name).values()]
        versions = {f"{k} {c['machine'].get(k) or ''}".strip() for c in cells for k in method.needs}
        rows.append([name, method.about, ", ".join(sorted(versions)) if cells else "not run"])
    return table(["method", "settings", "versions"], rows)


def main(folder=DOCS):
    text = "\n".join(line for section in sections() for line in section) + "\n"
    path = folder / "tables_results.md"
    path.write_text(text)
    print(path)
