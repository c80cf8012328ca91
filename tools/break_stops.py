"""Try to break models by stopping: Ctrl-C at random moments, time budgets, killed commands.

    python -m tools.break_stops --count 600           a new seed, which is printed
    python -m tools.break_stops --seed 7 --count 600  the same cases again
    python -m tools.break_stops --seed 7 --only presses --case 123    one of them

Each case runs in a process of its own, which is forked. Ctrl-C comes at a random moment of a call,
or at a random instruction of it (`tools.pressing`), and more often after that. Or a fit gets a time
budget, or the command `triegp` a signal. What must hold afterwards is in `tools.stop_cases`,
`tools.stop_budgets` and `tools.stop_commands`. The exit status is 1 if anything else was seen.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import secrets
import selectors
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.stop_budgets import draw_budget, run_budget
from tools.stop_cases import BrokenError, Reference, draw_case, run_stopped
from tools.stop_commands import (
    check_command,
    draw_command,
    output_of,
    put_old,
    run_command,
    write_inputs,
)

PATIENCE = 90.0  # seconds after which a call that was stopped counts as endless
BUDGET_PATIENCE = 600.0
PARTS = ("presses", "budgets", "commands")
FINE = (
    "as before",
    "finished",
    "done, then raised",
    "done in part",
    "shortened",
    "not used",
    "the old file",
    "the new file",
)

Tell = Callable[[bytes], object]


def in_child(
    work: Callable[[Tell], Any], presses: list[float], number: int, patience: float, errors: Path
) -> tuple[int | None, list[str]]:
    """Run `work` in a forked process, and send it a signal so many seconds after it begins.

    It gets a function that writes lines: "begin" when signals may come, "ended" when no more
    should, then what it found. Returns its exit status, None if it did not end, and the lines. What
    it writes to stderr goes to a file.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            faulthandler.enable(all_threads=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            work(lambda line: os.write(writing, line))
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writing)
    text, due = b"", list(presses)
    began: float | None = None
    deadline = time.monotonic() + patience
    with selectors.DefaultSelector() as selector, os.fdopen(reading, "rb", buffering=0) as pipe:
        selector.register(pipe, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            wait = deadline - time.monotonic()
            if began is not None and due:
                wait = began + due[0] - time.monotonic()
            if selector.select(max(0.0, wait)):
                some = pipe.read(65536)
                if not some:
                    break
                text += some
                if began is None and b"begin\n" in text:
                    began = time.monotonic()
                if b"ended\n" in text:
                    due = []
            elif began is not None and due:
                due.pop(0)
                os.kill(child, number)
    lines = text.decode().splitlines()
    if time.monotonic() >= deadline:
        os.kill(child, signal.SIGABRT)  # faulthandler writes where all threads are
        time.sleep(1.0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None, lines
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lines


def _found(
    case: dict[str, Any], status: int | None, lines: list[str], errors: Path
) -> dict[str, Any]:
    """What a child found; what it wrote to stderr, if it broke."""
    last = lines[-1] if lines else ""
    if status == 0 and last.startswith("{"):
        return dict(json.loads(last))
    outcome = "endless" if status is None else f"ended by {status}"
    return case | {"outcome": outcome, "detail": errors.read_text()[-6000:]}


def _report(case: dict[str, Any], work: Callable[[], str], tell: Tell) -> None:
    """Run a case and tell what came of it, as JSON."""
    try:
        case["outcome"] = work()
    except BrokenError as error:
        case["outcome"] = f"broken: {error}"
    except BaseException as error:
        case["outcome"] = type(error).__name__
        case["detail"] = traceback.format_exc()[-6000:]
    tell(json.dumps(case).encode() + b"\n")


class Campaign:
    """Cases of all parts, and what they have in common.

    Parameters
    ----------
    seed : int
        Every case is drawn from it and its number.
    folder : Path
        An empty folder.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.references: dict[tuple[str, str], tuple[Reference, float]] = {}
        self.commands: dict[str, float] = {}

    def run(self, part: str, case: int) -> dict[str, Any]:
        """What came of one case."""
        found = {"presses": self.press, "budgets": self.budget, "commands": self.command}[part](
            case
        )
        return found | {"part": part, "case": case}

    def press(self, number: int) -> dict[str, Any]:
        """Press Ctrl-C during a call."""
        case = draw_case(self.seed, number)
        key = case["scene"], case["kind"]
        if key not in self.references:
            folder = self.folder / f"reference {len(self.references)}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reference = Reference(case, folder)
            self.references[key] = reference, reference.seconds
        reference, seconds = self.references[key]
        first = case["at"] * 1.2 * seconds
        presses = [first + sum(case["gaps"][:k]) for k in range(len(case["gaps"]) + 1)]
        if case["moment"] == "an instruction":
            presses = presses[1:]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            errors = self.folder / "errors"

            def work(tell: Tell) -> None:
                _report(case, lambda: run_stopped(case, reference, Path(name), tell), tell)

            done = in_child(work, presses, signal.SIGINT, PATIENCE, errors)
            return _found(case, *done, errors)

    def budget(self, number: int) -> dict[str, Any]:
        """Fit with a time budget."""
        case = draw_budget(self.seed, number)
        errors = self.folder / "errors"

        def work(tell: Tell) -> None:
            warnings.simplefilter("ignore")
            _report(case, lambda: run_budget(case), tell)

        done = in_child(work, [], signal.SIGINT, BUDGET_PATIENCE, errors)
        return _found(case, *done, errors)

    def command(self, number: int) -> dict[str, Any]:
        """End a command by a signal."""
        case = draw_command(self.seed, number)
        inputs, errors = self.folder / "inputs", self.folder / "errors"
        if not inputs.exists():
            inputs.mkdir()
            write_inputs(inputs)
        name = case["command"]
        if name not in self.commands:
            began = time.monotonic()
            self._command(name, inputs, [], signal.SIGINT, errors)
            self.commands[name] = time.monotonic() - began
        when = [1.1 * case["at"] * self.commands[name]]
        number = getattr(signal, case["signal"])
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            folder = Path(place)
            put_old(name, inputs, folder)
            old = output_of(name, folder).read_bytes()

            def work(tell: Tell) -> None:
                tell(b"begin\n")
                run_command(name, inputs, folder)

            status, _ = in_child(work, when, number, PATIENCE, errors)
            if status is None:
                return case | {"outcome": "endless", "detail": errors.read_text()[-6000:]}
            try:
                outcome = check_command(case, status, errors.read_text(), folder, old)
            except BrokenError as error:
                outcome = f"broken: {error}"
            return case | {"outcome": outcome}

    def _command(
        self, name: str, inputs: Path, when: list[float], number: int, errors: Path
    ) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            put_old(name, inputs, Path(place))
            work = lambda tell: run_command(name, inputs, Path(place))  # noqa: E731
            status, _ = in_child(work, when, number, PATIENCE, errors)
            assert status == 0, errors.read_text()


def print_table(part: str, found: list[dict[str, Any]]) -> None:
    """Counts by stage and outcome, as Markdown."""
    stage = {"presses": "scene", "budgets": "kind", "commands": "command"}[part]
    outcomes = [name for name in FINE if any(one["outcome"] == name for one in found)]
    outcomes += sorted({one["outcome"] for one in found} - set(FINE))
    counts = collections.Counter((one[stage], one["outcome"]) for one in found)
    names = list(dict.fromkeys(one[stage] for one in found))
    print(f"\n| {part} | " + " | ".join(outcomes) + " |")
    print("|---|" + "---:|" * len(outcomes))
    for name in names:
        print(f"| {name} | " + " | ".join(f"{counts[name, out]:,}" for out in outcomes) + " |")
    sums = [sum(counts[name, out] for name in names) for out in outcomes]
    print("| all | " + " | ".join(f"{one:,}" for one in sums) + " |")


def main() -> int:
    """Run a campaign; 1 if something is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=600, help="cases of Ctrl-C (600)")
    parser.add_argument("--budgets", type=int, help="cases of budgets (a tenth)")
    parser.add_argument("--commands", type=int, help="cases of commands (a tenth)")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--only", choices=PARTS, help="only this part")
    parser.add_argument("--case", type=int, help="only this case")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"break-stops: seed {seed}", flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in a background job
    import triegp

    print(f"kernels are loaded: {triegp.warm_up():.0f} s", flush=True)
    tenth = -(-options.count // 10)
    counts = {
        "presses": options.count,
        "budgets": tenth if options.budgets is None else options.budgets,
        "commands": tenth if options.commands is None else options.commands,
    }
    n_broken = 0
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(seed, Path(folder))
        for part in PARTS if options.only is None else (options.only,):
            cases = range(counts[part])
            if options.case is not None:
                cases = range(options.case, options.case + 1)
            found = []
            for case in cases:
                one = campaign.run(part, case)
                found.append(one)
                if one["outcome"] not in FINE:
                    n_broken += 1
                    print(f"{part}, case {case}: {json.dumps(one, indent=1)}", flush=True)
                    print(one.get("detail", ""), flush=True)
                if part == "budgets" or options.case is not None:
                    print(json.dumps(one), flush=True)
                elif len(found) % 50 == 0:
                    print(f"{len(found)} of {len(cases)}", flush=True)
            print_table(part, found)
    if n_broken:
        print(f"break-stops: {n_broken} broken, with --seed {seed}, --only, --case")
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
