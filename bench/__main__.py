"""Every claim by one command; `python -m bench --help` lists them."""

import argparse

from bench import (
    battery,
    calibration,
    calibration_cases,
    cells,
    frames,
    frames_data,
    pace,
    plan,
    scaling,
)
from bench.methods import METHODS, missing


def run_cells(todo, *, limit=cells.LIMIT, again=False, apart=True):
    """Run cells with a progress bar, one line per cell; stored cells are not run again."""
    from tqdm import tqdm

    with tqdm(todo, unit="cell") as bar:
        for part, data, method, seed in bar:
            bar.set_description(f"{data}, {method}, seed {seed}")
            cell = cells.run_cell(part, data, method, seed, limit=limit, again=again, apart=apart)
            bar.write(line_of(cell))


def line_of(cell):
    """A cell in one line."""
    head = f"{cell['part']} {cell['data']:15s} {cell['method']:20s} {cell['seed']} {cell['status']}"
    if cell["status"] != "ok":
        return f"{head} {cell.get('note', '')}"
    nll = "-" if cell["nll"] is None else f"{cell['nll']:.3f}"
    return (
        f"{head} nll {nll} rmse {cell['rmse']:.3f} crps {cell['crps']:.4f} "
        f"90 % {100 * cell['coverage']['90']:.1f} fit {cell['fit_seconds']:.1f} s"
    )


def list_methods(_):
    for method in METHODS.values():
        absent = missing(method)
        state = f"not installed: {', '.join(absent)}" if absent else "installed"
        print(f"{method.name:28s} {state:30s} {method.about}")


def run(options):
    if options.together and options.limit is not None:
        raise SystemExit("--limit and --together do not go together: one process has no limit")
    part = options.part
    todo = [(part, d, m, s) for m in options.methods for s in options.seeds for d in options.data]
    limit = options.limit or cells.LIMIT
    run_cells(todo, limit=limit, again=options.again, apart=not options.together)


def table(options):
    limit = options.limit or cells.LIMIT
    run_cells(plan.cells_of(options.command), limit=limit, again=options.again)


def quick(_):
    """Run every method on two small data sets with one seed, to see that all of it works."""
    from threadpoolctl import threadpool_limits

    todo = [("test", d, m, 0) for m in (*plan.OURS[:3], *plan.PEERS) for d in plan.SMALL]
    with threadpool_limits(1):  # so few rows are not worth a second thread
        run_cells(todo, apart=False)


def scale(options):
    scaling.main(options.limit or cells.LIMIT, options.methods)


def calibrate(options):
    calibration.main(options.cases, options.estimators, options.again)


def hard_cases(options):
    battery.main(options.estimators)


def tables(options):
    if options.page:
        from bench import frames_page

        return frames_page.main()
    frames.main(options.data, options.methods, options.seeds, options.part, options.again)


def module(name):
    def call(_):
        import importlib

        importlib.import_module(f"bench.{name}").main()

    return call


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("methods", help="what is installed").set_defaults(work=list_methods)
    some = commands.add_parser("run", help="chosen cells")
    some.add_argument("data", nargs="+", help="names of data sets")
    some.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", required=True)
    some.add_argument("--seeds", nargs="+", type=int, default=list(plan.SEEDS))
    some.add_argument("--part", choices=("valid", "test"), default="test")
    some.add_argument(
        "--together", action="store_true", help="in one process, without a time limit"
    )
    some.set_defaults(work=run)
    named = {
        name: commands.add_parser(name, help=f"the cells of table {name!r}") for name in plan.TABLES
    }
    for one in named.values():
        one.set_defaults(work=table)
    for one in (some, *named.values()):
        one.add_argument("--again", action="store_true", help="run stored cells again")
    once = commands.add_parser("quick", help="two small data sets, one seed, every method")
    once.set_defaults(work=quick)
    sizes = commands.add_parser("scaling", help="time and memory against n")
    sizes.add_argument(
        "--methods", nargs="+", choices=scaling.ALL, metavar="METHOD", default=scaling.ALL
    )
    sizes.set_defaults(work=scale)
    race = commands.add_parser("pace", help="fits and predictions of the flagship beside LightGBM")
    race.add_argument("--sizes", nargs="+", type=int, metavar="N", default=pace.SIZES)
    race.set_defaults(work=lambda options: pace.main(options.sizes))
    known = commands.add_parser("calibration", help="coverage on data of known noise; its page")
    known.add_argument(
        "--cases", nargs="+", choices=calibration_cases.BY_NAME, metavar="CASE", help="default: all"
    )
    known.add_argument("--again", action="store_true", help="measure stored cases again")
    known.set_defaults(work=calibrate)
    hard = commands.add_parser("battery", help="coverage without signal, by region, of few rows")
    hard.set_defaults(work=hard_cases)
    for command in (known, hard):
        command.add_argument(
            "--estimators",
            nargs="+",
            choices=calibration.ESTIMATORS,
            default=calibration.ESTIMATORS,
            help="B: BinaryTreeGPRegressor, F: TrieGPRegressor",
        )
    frame = commands.add_parser("tables", help="DataFrames with categories and gaps; their page")
    frame.add_argument(
        "--data", nargs="+", choices=frames_data.TABLES, metavar="DATA", help="default: all"
    )
    frame.add_argument(
        "--methods", nargs="+", choices=frames.METHODS, metavar="METHOD", help="default: all"
    )
    frame.add_argument("--seeds", nargs="+", type=int, default=list(plan.SEEDS))
    frame.add_argument("--part", nargs="+", choices=frames.PARTS, default=["test"])
    frame.add_argument("--again", action="store_true", help="run stored cells again")
    frame.add_argument("--page", action="store_true", help="only write docs/tables_results.md")
    frame.set_defaults(work=tables)
    for one in (some, sizes, *named.values()):
        one.add_argument(
            "--limit", type=float, help=f"seconds per fit, {cells.LIMIT:.0f} by default"
        )
    modules = {
        "unique": "unique bit strings before and after ECDF",
        "schematics": "the paper's four schematic figures",
        "page": "docs/results.md and its plots, from the cells",
    }
    for name, about in modules.items():
        commands.add_parser(name, help=about).set_defaults(work=module(name))
    options = parser.parse_args(arguments)
    options.work(options)


if __name__ == "__main__":
    main()
