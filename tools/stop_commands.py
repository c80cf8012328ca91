"""The command `triegp`, ended by a signal: cases, and what must hold after each."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tools.stop_cases import BrokenError
from tools.stop_scenes import make_table

COMMANDS = ("fit", "predict", "update", "report")
SIGNALS = {"SIGINT": 130, "SIGTERM": 143}
QUICK = ["--estimator", "mixture", "--param", "n_members=4", "--param", "n_candidates=4"]


def draw_command(seed: int, case: int) -> dict[str, Any]:
    """One case: a command, a signal, and when it comes."""
    draw = np.random.default_rng([seed, case, 2])
    return {
        "command": COMMANDS[case % len(COMMANDS)],
        "signal": str(draw.choice(list(SIGNALS))),
        "at": float(draw.random()),
    }


def write_inputs(folder: Path) -> None:
    """Tables, and a model to use."""
    for name, n, seed in (("train", 600, 20), ("more", 50, 21), ("new", 20_000, 22)):
        X, y = make_table(n, seed)
        X["y"] = y
        X.to_csv(folder / f"{name}.csv", index=False)
    _run(_arguments("fit", folder, folder / "model.tgp"))


def _arguments(command: str, inputs: Path, output: Path) -> list[str]:
    model = str(inputs / "model.tgp")
    train = [str(inputs / "train.csv"), "--target", "y"]
    return {
        "fit": ["fit", *train, "-o", str(output), *QUICK],
        "predict": ["predict", model, str(inputs / "new.csv"), "-o", str(output)],
        "update": ["update", str(output), str(inputs / "more.csv"), "--target", "y"],
        "report": ["report", model, "-o", str(output)],
    }[command]


def output_of(command: str, folder: Path) -> Path:
    """The file that a command writes."""
    endings = {"fit": "tgp", "predict": "csv", "update": "tgp", "report": "html"}
    return folder / f"out.{endings[command]}"


def put_old(command: str, inputs: Path, folder: Path) -> None:
    """An older file where the command writes."""
    old = b"old"
    if command == "update":
        old = (inputs / "model.tgp").read_bytes()
    output_of(command, folder).write_bytes(old)


def run_command(command: str, inputs: Path, folder: Path) -> None:
    """Run the command in this process, which ends with it."""
    _end(_arguments(command, inputs, output_of(command, folder)))


def _run(arguments: list[str]) -> None:
    """Run a command in another process, to its end."""
    child = os.fork()
    if not child:
        _end(arguments)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, (arguments, status)


def _end(arguments: list[str]) -> None:
    """Run a command and end this process as it would."""
    from triegp.cli import main

    status: Any = 0
    sys.argv = ["triegp", *arguments]
    try:
        main()
    except SystemExit as ended:
        status = ended.code or 0
    except KeyboardInterrupt:  # as Python ends
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status % 256)


def check_command(case: dict[str, Any], status: int, said: str, folder: Path, old: bytes) -> str:
    """What came of a command; raises BrokenError if it left anything but the old or new file."""
    output = output_of(case["command"], folder)
    if sorted(os.listdir(folder)) != [output.name]:
        raise BrokenError(f"files were left: {sorted(os.listdir(folder))}")
    content = output.read_bytes()
    if status == 0:
        if content == old:
            raise BrokenError("it ended with 0, and the file is the old one")
        _check_whole(case["command"], output)
        return "finished"
    early = -int(getattr(signal, case["signal"]))  # before its handlers: 130 or 143 in a shell
    if status == early and content == old:
        return "the old file"
    if status != SIGNALS[case["signal"]]:
        raise BrokenError(f"exit status {status} after {case['signal']}: {said[-500:]}")
    if "Traceback" in said or said.count("\n") > 1:
        raise BrokenError(f"it said: {said[-500:]}")
    if content == old:
        return "the old file"
    _check_whole(case["command"], output)
    return "the new file"


def _check_whole(command: str, output: Path) -> None:
    """Raise BrokenError unless the new file is complete."""
    from triegp import load

    if command in ("fit", "update"):
        n_rows = load(output).n_rows_
        if n_rows != (600 if command == "fit" else 650):
            raise BrokenError(f"a model of {n_rows} rows")
    elif command == "predict":
        n_lines = output.read_bytes().count(b"\n")
        if n_lines != 20_001:
            raise BrokenError(f"{n_lines} lines")
    elif not output.read_bytes().rstrip().endswith(b"</html>"):
        raise BrokenError("half a report")
