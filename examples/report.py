"""A report about hourly bicycle rentals, made up: categories, gaps, dates, uneven noise, errors.

    python examples/report.py [report.html]

Some rows are recorded twice, some targets were mistyped, one column never changes and one means
nothing. The report finds out. Needs pandas and the extra `plots`; takes half a minute.
"""

import sys

import numpy as np
import pandas as pd

from triegp import BinaryTreeGPRegressor


def make_rentals(n_rows: int = 4_000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of hours, and the bicycles rented in each."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 700, n_rows), unit="D")
    table = pd.DataFrame(
        {
            "hour": rng.integers(0, 24, n_rows),
            "temperature": rng.normal(15, 8, n_rows).round(1),
            "weather": rng.choice(
                ["clear", "mist", "rain", "storm"], n_rows, p=[0.6, 0.2, 0.15, 0.05]
            ),
            "humidity": np.where(rng.random(n_rows) < 0.08, np.nan, rng.uniform(20, 100, n_rows)),
            "windspeed": rng.gamma(2, 6, n_rows).round(1),
            "date": pd.Timestamp("2023-01-01") + days,
            "station": 1,
        }
    )
    hour, rain = table["hour"].to_numpy(), table["weather"].to_numpy() == "rain"
    weekend = (table["date"].dt.day_of_week > 4).to_numpy()
    morning, evening = np.exp(-(((hour - 8) / 2.5) ** 2)), np.exp(-(((hour - 18) / 3.0) ** 2))
    rentals = 60 + 60 * morning * ~weekend + 90 * evening
    rentals = rentals + 2.2 * table["temperature"].to_numpy() * (hour > 9)
    rentals = rentals + table["weather"].map({"clear": 20, "mist": 0, "rain": -40, "storm": -60})
    noise = 4 + 0.35 * np.maximum(hour - 6, 0) * (1 + rain)
    rentals = np.array(rentals + noise * rng.standard_normal(n_rows))
    mistyped = rng.choice(n_rows, 6, replace=False)
    rentals[mistyped] += 160 * rng.choice([-1, 1], 6)
    again = rng.choice(n_rows, n_rows // 40, replace=False)  # recorded twice
    return pd.concat([table, table.iloc[again]]), np.append(rentals, rentals[again])


def main() -> None:
    """Fit all but a fifth of the rows, and write the report."""
    table, rentals = make_rentals()
    train = np.random.default_rng(1).random(len(table)) < 0.8
    model = BinaryTreeGPRegressor(random_state=0).fit(table[train], rentals[train])
    path = model.report(
        sys.argv[1] if len(sys.argv) > 1 else "report.html",
        table[~train],
        rentals[~train],
        title="Bicycle rentals per hour",
        targets=["rentals"],
    )
    print(f"wrote {path}, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
