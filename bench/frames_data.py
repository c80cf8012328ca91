"""Tables with categories, dates and gaps, as pandas DataFrames, built from those of `bench.data`.

The rows are split as in `bench.data.load`; of each part the first rows are taken, up to a limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.data import read
from bench.methods.task import Task

TEST_ROWS = 20_000
GAPS = 0.2  # share of the cells
RUN_ROWS = 1_440  # of a gap in blocks: a day of minutes

SYNTHETIC_ROWS = 50_000
EFFECT_SD, SLOPE_SD, NOISE_SD = 1.0, 1.0, 0.5

HOUSE = (
    *("day", "month", "year", "hour", "minute", "reactive_power", "voltage", "intensity"),
    *("sub_metering_1", "sub_metering_2", "sub_metering_3"),
)
SEASONS = ("winter", "spring", "summer", "autumn")
WEATHERS = ("clear", "mist", "light rain or snow", "heavy rain or snow")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Table:
    """A table of the suite.

    build : callable
        seed -> (frame, y) of all rows.
    train_rows : int or None
        Largest number of training rows; validation has a quarter of it.
    about : str
        What it is, for the page.
    """

    name: str
    build: Callable
    train_rows: int | None
    about: str


def load(name, seed):
    """(Task, frame, y): what a method is given to fit, and the test part."""
    table = TABLES[name]
    frame, y = table.build(seed)
    rows = np.random.RandomState(seed).permutation(len(y))
    first = int(0.8 * len(y))
    second = int(0.8 * first)
    train = rows[:second][: table.train_rows]
    valid = rows[second:first][: table.train_rows and table.train_rows // 4]
    test = rows[first:][:TEST_ROWS]
    parts = [(frame.iloc[part].reset_index(drop=True), y[part]) for part in (train, valid, test)]
    return Task(*parts[0], *parts[1], seed), *parts[2]


# Real tables


def flights(_):
    """Airports are named by their coordinates; the day of 2001 is a date."""
    import pandas as pd

    X, y = read("flights3m")
    day, weekday, minute, distance = X[:, :4].T
    frame = pd.DataFrame(
        {
            "date": pd.Timestamp("2001-01-01") + pd.to_timedelta(day.astype(int) - 1, unit="D"),
            "weekday": _category(weekday, WEEKDAYS),
            "minute": minute.astype(np.float64),
            "distance": distance.astype(np.float64),
            "origin": airports(X[:, 4:6]),
            "destination": airports(X[:, 6:8]),
        }
    )
    return frame, y.astype(np.float64)


def airports(coordinates):
    """Category per pair of coordinates."""
    import pandas as pd

    pairs = np.ascontiguousarray(coordinates, np.float32).view(np.complex64).ravel()
    known, codes = np.unique(pairs, return_inverse=True)
    labels = [f"{pair.real:.4f} {pair.imag:.4f}" for pair in known]
    return pd.Categorical.from_codes(codes, labels)


def bike(_):
    """Without the two features whose sum is the target."""
    import pandas as pd

    X, y = read("bike")
    codes = [np.rint(column - column.min()).astype(int) for column in X[:, :11].T]
    year, month, day, season, _, _, hour, holiday, weekday, workday, weather = codes
    date = {"year": 2011 + year, "month": 1 + month, "day": 1 + day}
    frame = pd.DataFrame(
        {
            "date": pd.to_datetime(pd.DataFrame(date)),
            "season": _category(season, SEASONS),
            "year": _category(year, (2011, 2012)),
            "month": _category(month, range(1, 13)),
            "hour": _category(hour, range(24)),
            "holiday": _category(holiday, ("no", "yes")),
            "weekday": _category(weekday, (WEEKDAYS[-1], *WEEKDAYS[:-1])),
            "workday": _category(workday, ("no", "yes")),
            "weather": _category(weather, WEATHERS),
            **dict(
                zip(
                    ("temperature", "felt_temperature", "humidity", "wind"),
                    X[:, 11:15].T.astype(np.float64),
                    strict=True,
                )
            ),
        }
    )
    return frame, y.astype(np.float64)


def _category(codes, labels):
    import pandas as pd

    return pd.Categorical.from_codes(codes.astype(int), list(labels))


def house(_):
    """Minutes in the order of time."""
    import pandas as pd

    X, y = read("houseelectric_2007h1")
    return pd.DataFrame(X.astype(np.float64), columns=list(HOUSE)), y.astype(np.float64)


def house_with_gaps(seed):
    frame, y = house(seed)
    return frame.mask(scattered_gaps(frame.shape, np.random.default_rng(seed), GAPS)), y


def house_with_blocks(seed):
    frame, y = house(seed)
    rng = np.random.default_rng(seed)
    return frame.mask(block_gaps(frame.shape, rng, GAPS, RUN_ROWS)), y


def scattered_gaps(shape, rng, share):
    """Which cells are missing: each with the same probability, independently."""
    return rng.random(shape) < share


def block_gaps(shape, rng, share, run_rows):
    """Which cells are missing: in every column, runs of rows at random places, no two overlap."""
    n_rows, n_columns = shape
    n_runs = round(share * n_rows / run_rows)
    out = np.zeros(shape, bool)
    for j in range(n_columns):
        starts = np.sort(rng.integers(0, n_rows - n_runs * run_rows + 1, n_runs))
        for k, start in enumerate(starts):
            out[start + k * run_rows :][:run_rows, j] = True
    return out


# Synthetic tables


def categories(n_categories, n_rows=SYNTHETIC_ROWS):
    """seed -> rows with so many categories; category k of n has frequency proportional to 1 / k."""

    def build(seed):
        import pandas as pd

        rng = np.random.default_rng(seed)
        share = 1 / np.arange(1, n_categories + 1)
        code = rng.choice(n_categories, n_rows, p=share / share.sum())
        a, b = rng.random((2, n_rows))
        effect = EFFECT_SD * rng.standard_normal(n_categories)
        slope = SLOPE_SD * rng.standard_normal(n_categories)
        label = rng.permutation(n_categories)  # says nothing of the frequency
        frame = pd.DataFrame({"shop": [f"shop {i:06d}" for i in label[code]], "a": a, "b": b})
        mean = smooth(frame) + effect[code] + slope[code] * tilt(frame)
        return frame, mean + NOISE_SD * rng.standard_normal(n_rows)

    return build


def smooth(frame):
    """Part of the synthetic mean that does not depend on the category, (m,)."""
    a, b = frame["a"].to_numpy(), frame["b"].to_numpy()
    return np.sin(2 * np.pi * a) + 4 * (b - 0.5) ** 2


def tilt(frame):
    """What the slope of a category multiplies, (m,)."""
    return frame["a"].to_numpy() - 0.5


_TABLES = (
    Table(
        "flights",
        flights,
        100_000,
        "US flights of January to June 2001, target delay: date (datetime), weekday, origin and "
        "destination (category), minute of the day and distance (numbers)",
    ),
    Table(
        "bike",
        bike,
        None,
        "bike rentals per hour, target log count: date (datetime), season, year, month, hour, "
        "holiday, weekday, workday and weather (category), four numbers of the weather; without "
        "the two features whose sum is the count",
    ),
    Table(
        "house",
        house,
        50_000,
        "household power, target active power: eleven numbers, without gaps",
    ),
    Table(
        "house-gaps",
        house_with_gaps,
        50_000,
        "the same rows, 20 % of the cells missing at random, in all parts",
    ),
    Table(
        "house-blocks",
        house_with_blocks,
        50_000,
        "the same rows, 20 % of each column missing in runs of 1,440 consecutive minutes",
    ),
    *(
        Table(
            f"categories-{n}",
            categories(n),
            None,
            f"synthetic, 50,000 rows: a string column of {n:,} possible labels of Zipf "
            "frequencies, two numbers; a random effect and a random slope per label, a smooth "
            f"function of the numbers, Gaussian noise of deviation {NOISE_SD}",
        )
        for n in (10, 1_000, 100_000)
    ),
)
TABLES = {table.name: table for table in _TABLES}
SYNTHETIC = tuple(name for name in TABLES if name.startswith("categories-"))
WITHOUT_GAPS = {"house-gaps": "house", "house-blocks": "house"}
