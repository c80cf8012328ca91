"""Figures of the paper: every number of its result tables, as published.

Cohen, Daulton, Osborne, "Log-Linear-Time Gaussian Processes Using Binary Tree Kernels", NeurIPS
2022: paper_tables.csv (mean and two standard errors over three seeds; times in minutes, on a V100)
and paper_unique_bitstrings.csv. In the precision table the paper's row of BTE on Bike repeats that
of Elevators, a misprint, and is left out.
"""

import csv
from pathlib import Path

HERE = Path(__file__).parent
NAMES = {  # ours: the paper's
    "pol": "PoleTele",
    "elevators": "Elevators",
    "bike": "Bike",
    "kin40k": "Kin40k",
    "protein": "Protein",
    "keggdirected": "KeggDir",
    "slice": "CTslice",
    "keggundirected": "KEGGU",
    "3droad": "3DRoad",
    "song": "Song",
    "buzz": "Buzz",
    "houseelectric": "HouseElec",
}


def _read(name):
    with (HERE / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _tables():
    found = {}
    for row in _read("paper_tables.csv"):
        misprint = row["table"] == "precision" and row["dataset"] == "Bike"
        if misprint and row["method"].startswith("BTE"):
            continue
        place = (row["table"], row["dataset"], row["method"], row["metric"])
        error = float(row["two_se"]) if row["two_se"] else None
        found[place] = (float(row["value"]), error)
    return found


TABLES = _tables()
UNIQUE = {row["dataset"]: row for row in _read("paper_unique_bitstrings.csv")}


def figure(table, data, method, metric):
    """(mean, two standard errors) that the paper reports, or None."""
    return TABLES.get((table, NAMES.get(data), method, metric))
