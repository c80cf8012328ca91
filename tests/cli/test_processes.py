"""The command as a process of its own: pipes, signals, memory, and what starting it loads."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import cli_problems as problems
import triegp
from cli_problems import FORMATS, QUICK, run, run_well, start
from triegp.cli.app import COMMANDS, app
from triegp.cli.console import Console

posix = pytest.mark.skipif(os.name != "posix", reason="signals and pipes are those of posix")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of two columns."""
    found = tmp_path_factory.mktemp("processes")
    frame = problems.make_frame(40)[["x", "flag", "y"]]
    problems.write_frame(frame, found / "d.csv")
    run_well("fit", found / "d.csv", "--target", "y", "-o", found / "m.tgp", *QUICK)
    return found


def write_many(path, n_rows, width=200):
    """A CSV file with a long text in each row."""
    x = np.random.default_rng(0).random(n_rows)
    pad = pa.array(["z" * width]).take(pa.array(np.zeros(n_rows, int)))
    table = pa.table({"pad": pad, "x": x, "flag": x > 0.5})
    pa.csv.write_csv(table, path)


def end(process, **extra):
    out, err = process.communicate(timeout=120, **extra)
    return process.returncode, out.decode(), err.decode()


# Starting


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_loads_nothing_heavy(command):
    code = (
        "import sys\n"
        "from triegp.cli import main\n"
        "try:\n"
        f"    sys.argv = ['triegp', *{command}, '--help']; main()\n"
        "except SystemExit as stopped:\n"
        "    assert stopped.code == 0\n"
        "heavy = ('numpy', 'pyarrow', 'sklearn', 'numba', 'scipy', 'safetensors', 'matplotlib')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "Usage: triegp" in done.stdout


def test_every_command_and_option_has_a_help_text():
    assert "Usage: triegp" in run_well()
    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z]", run_well("--help"), re.MULTILINE)
        text = run_well(command, "--help")
        for option in ("--json", "--quiet", "--verbose", "--debug"):
            assert option in text


def test_examples_of_the_help_have_lines_of_their_own():
    text = run_well("--help")
    assert "\\b" not in text
    assert "\b" not in text
    lines = text.splitlines()
    first = lines.index("    triegp fit train.csv --target price -o model.tgp")
    assert lines[first + 2] == "    triegp report model.tgp -o report.html"


def test_every_command_of_the_page_is_one():
    """Names and options, without running them."""
    text = (problems.ROOT / "docs" / "command_line.md").read_text()
    lines = re.findall(r"^ {4}.*?\btriegp (.*)$", text, re.MULTILINE)
    assert len(lines) >= 15
    for line in lines:
        arguments = shlex.split(line.split(" | ")[0])
        if arguments[0] == "--help":
            continue
        with app.make_context("triegp", arguments, obj=Console()) as ctx:
            found = app.get_command(ctx, arguments[0])
            found.make_context(arguments[0], arguments[1:], parent=ctx)


def test_version():
    code, out, err = end(start("--version"))
    assert (code, out, err) == (0, f"triegp, version {triegp.__version__}\n", "")


def test_the_entry_point_is_the_command():
    text = (problems.ROOT / "pyproject.toml").read_text()
    assert 'triegp = "triegp.cli:main"' in text


# What is said, and where


def test_json_is_all_that_is_on_stdout(folder):
    code, out, _ = end(
        start("evaluate", folder / "m.tgp", folder / "d.csv", "--target", "y", "--json", "-v")
    )
    assert code == 0
    assert json.loads(out)["rows"] == 40
    assert out.count("\n") == 1


def test_quiet_says_nothing(folder, tmp_path):
    arguments = ["predict", folder / "m.tgp", folder / "d.csv", "-o", tmp_path / "p.csv"]
    for place in ([*arguments, "-q"], ["-q", *arguments]):
        assert end(start(*place)) == (0, "", "")
    assert (tmp_path / "p.csv").exists()


def test_no_progress_without_a_terminal(folder):
    _, out, err = end(start("predict", folder / "m.tgp", folder / "d.csv", "-o", "-"))
    assert out.count("\n") == 41
    assert re.fullmatch(r"40 rows predicted in [\d.]+ s, written to standard output\n", err)


@posix
def test_progress_on_a_terminal(folder, tmp_path):
    ours, theirs = os.openpty()
    process = start(
        *("predict", folder / "m.tgp", folder / "d.csv", "-o", tmp_path / "p.csv"),
        *("--batch-rows", 15),
        stderr=theirs,
    )
    process.communicate(timeout=120)
    os.close(theirs)
    shown = b""
    while b"40 rows" not in shown:
        shown += os.read(ours, 1000)
    os.close(ours)
    assert shown.count(b"rows predicted") == 3


def test_errors_are_one_line_and_exit_code_2(folder):
    code, out, err = end(start("predict", folder / "m.tgp", "no.csv", "-o", "-"))
    assert (code, out, err) == (2, "", "triegp: no.csv: there is no such file\n")


# Streaming


@posix
def test_rows_are_predicted_before_the_last_ones_are_there(folder):
    """Through a pipe that stays open until predictions of its first rows have come back."""
    process = start("predict", folder / "m.tgp", "-", "-o", "-", "-q", "--batch-rows", 1000)
    deadline = threading.Timer(120, process.kill)  # then reads end, and the test fails
    deadline.start()
    rows = "".join(f"{k / 100_000},true\n" for k in range(100_000)).encode()
    enough = threading.Event()

    def write():
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(b"x,flag\n" + 6 * rows)
            process.stdin.flush()
            enough.wait(120)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        first = [process.stdout.readline() for _ in range(1001)]
        assert first[0] == b"mean,std\n"
        assert first[-1]
        assert process.poll() is None  # it waits for more
        enough.set()
        rest = process.stdout.read()
        assert process.wait(timeout=120) == 0
        assert len(first) + rest.count(b"\n") == 600_001
    finally:
        deadline.cancel()
        enough.set()
        process.kill()
        writer.join()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak is told by Linux")
@pytest.mark.parametrize("kind", FORMATS)
def test_memory_does_not_grow_with_the_rows(folder, tmp_path, kind):
    """Of 10 MB and of 100 MB, which are copied to the output; each batch has 2.5 MB."""
    code = (
        "import re, sys\n"
        "from triegp.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    text = open('/proc/self/status').read()\n"
        "    print(re.search(r'VmHWM:\\s+(\\d+) kB', text)[1], file=sys.stderr)\n"
    )
    peaks = []
    for n_rows in (20_000, 200_000):
        write_many(tmp_path / "d.csv", n_rows, width=500)
        path = tmp_path / f"d.{kind}"
        if kind != "csv":
            table = pa.csv.read_csv(tmp_path / "d.csv")
            if kind == "parquet":
                pa.parquet.write_table(table, path, row_group_size=20_000)
            else:
                pa.feather.write_feather(table, path, chunksize=20_000)
        arguments = ["predict", folder / "m.tgp", path, "-o", tmp_path / f"p.{kind}"]
        arguments += ["--keep", "pad", "--batch-rows", 5_000, "--mean-only", "-q"]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stderr) / 1024)
    assert peaks[1] - peaks[0] < 80, peaks  # all rows at once take 170 to 380 more


# Pipes that break, and signals


@posix
def test_a_broken_pipe_is_no_error(folder, tmp_path):
    write_many(tmp_path / "d.csv", 50_000)
    process = start(
        *("predict", folder / "m.tgp", tmp_path / "d.csv", "-o", "-", "--keep", "pad"),
        *("--batch-rows", 1000),
    )
    assert process.stdout.readline() == b"pad,mean,std\n"
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(timeout=120), err) == (141, b"")
    process.stdin.close()
    process.stderr.close()


@posix
@pytest.mark.parametrize("closed", ["1", "2"])
def test_closed_streams_are_no_error(folder, tmp_path, closed):
    """As of a service without a console."""
    command = [sys.executable, "-m", "triegp", "info", folder / "m.tgp"]
    found = subprocess.run(["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command], check=False)
    assert found.returncode == 0
    fit = [*command[:3], "fit", folder / "d.csv", "--target", "y", "-o", tmp_path / "m.tgp", "-v"]
    fit += QUICK
    found = subprocess.run(["sh", "-c", f'exec "$@" {closed}>&-', "sh", *fit], check=False)
    assert found.returncode == 0
    triegp.load(tmp_path / "m.tgp")


@posix
@pytest.mark.parametrize("begin", ["x,flag\n", "x,flag\n" + "0.5,true\n" * 300_000])
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, (130, "triegp: interrupted\n")), (signal.SIGTERM, (143, ""))],
)
def test_signals_end_the_command_and_remove_what_is_not_whole(
    folder, tmp_path, begin, number, expected
):
    """Also while it waits for a pipe that stalls."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    (tmp_path / "p.csv").write_text("old")
    process = start("predict", folder / "m.tgp", pipe, "-o", tmp_path / "p.csv")
    with open(pipe, "wb") as file:  # it has opened the other end when this returns
        file.write(begin.encode())
        file.flush()
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err.decode()) == expected
    assert sorted(os.listdir(tmp_path)) == ["p.csv", "pipe.csv"]
    assert (tmp_path / "p.csv").read_text() == "old"


def test_standard_input_that_is_no_file():
    result = run("fit", "-", "--target", "y", "-o", "m.tgp", input=b"x\n1\n")
    assert result.exit_code == 2
    assert "standard input: there is no column 'y'; it has 'x'" in result.stderr
