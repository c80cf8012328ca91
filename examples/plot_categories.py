"""
Strings, gaps, dates, and what was never seen
=============================================

A table as tables are: names of districts, an ordered energy class, sizes that are missing here and
there, dates. It goes in as it is. Then somebody asks about a flat in a district that is not in the
table, and the interval should know.
"""

# sphinx_gallery_thumbnail_number = 3

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from triegp import BinaryTreeGPRegressor
from triegp.plots import ImportanceDisplay

# %%
# The table
# ---------
# Rents of made-up flats in twelve districts. Each district has a price per square metre, better
# energy classes cost more, rents rise with time, and one size in ten is missing.

rng = np.random.default_rng(0)
DISTRICTS = [
    *("Abbey", "Bridge", "Castle", "Docks", "East End", "Forum"),
    *("Gardens", "Harbour", "Island", "Junction", "Kiln", "Lakeside"),
]
PRICE = dict(zip(DISTRICTS, rng.uniform(8, 24, 12), strict=True))  # per square metre
CLASSES = ["A", "B", "C", "D", "E"]


def make_table(n):
    """A data frame of flats, and their rents."""
    size = rng.gamma(8, 9, n) + 15
    table = pd.DataFrame(
        {
            "district": rng.choice(DISTRICTS, n),
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "energy": pd.Categorical(rng.choice(CLASSES, n), CLASSES, ordered=True),
            "floor": rng.integers(0, 7, n),
            "listed": pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 730, n), "D"),
        }
    )
    months = (table["listed"] - pd.Timestamp("2023-01-01")).dt.days / 30
    price = table["district"].map(PRICE) * (1 + 0.005 * months) - 0.5 * table["energy"].cat.codes
    rent = 120 + size * price * np.exp(0.08 * rng.standard_normal(n))
    return table, rent.to_numpy()


table, rent = make_table(6_000)
table.head()

# %%
# No column needs preparing. Rents are positive, hence the logarithm.

model = BinaryTreeGPRegressor(target_transform="log", random_state=0).fit(table, rent)
new, new_rent = make_table(4_000)
low, high = model.predict_interval(new, coverage=0.9).T
inside = (low < new_rent) & (new_rent < high)
gap = new["size"].isna()
print(f"fitted in {model.fit_seconds_:.1f} s; 90 % intervals cover {100 * inside.mean():.1f} %")
print(f"size known:   {100 * inside[~gap].mean():.1f} %, {(high - low)[~gap].mean():.0f} wide")
print(f"size missing: {100 * inside[gap].mean():.1f} %, {(high - low)[gap].mean():.0f} wide")

# %%
# What matters
# ------------
# Importances are those of the columns of the table, whatever they became inside.

display = ImportanceDisplay.from_estimator(model)

# %%
# One flat, and what we do not know about it
# ------------------------------------------
# A flat of 70 square metres in the dearest district. Take away what is known, a piece at a time. A
# missing size is a value of its own, which the model has met in training. A district that it has
# never met is integrated over: the prediction is the average over the districts that it knows, and
# the interval spans what districts can do to a rent.

dearest = max(PRICE, key=PRICE.get)
flat = pd.DataFrame(
    {
        "district": [dearest],
        "size": [70.0],
        "energy": pd.Categorical(["B"], CLASSES, ordered=True),
        "floor": [2],
        "listed": [pd.Timestamp("2024-06-01")],
    }
)
asked = {
    f"all known, {dearest}": flat,
    "floor missing": flat.assign(floor=np.nan),
    "size missing": flat.assign(size=np.nan),
    "new district, Meadows": flat.assign(district="Meadows"),
    "new district, size missing": flat.assign(district="Meadows", size=np.nan),
}
found = model.predict_quantiles(pd.concat(asked.values()), [0.05, 0.25, 0.5, 0.75, 0.95])

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#757575"
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for k, (q05, q25, q50, q75, q95) in enumerate(found):
    colour = BLUE if k == 0 else ORANGE
    ax.plot([q05, q95], [k, k], color=colour, lw=2, alpha=0.6, solid_capstyle="butt")
    ax.plot([q25, q75], [k, k], color=colour, lw=9, alpha=0.6, solid_capstyle="butt")
    ax.plot(q50, k, "o", color="white", ms=6, mec=colour, mew=2)
ax.set_yticks(range(len(asked)), asked)
ax.invert_yaxis()
ax.set(xlabel="rent: median, 50 % and 90 % intervals", xlim=(0, None))

# %%
# Is the wide interval right?
# ---------------------------
# Leave each district out of the table, fit the rest, and predict the district that the model has
# not seen. Beside it, what happens if an unknown district is replaced by the most frequent one, as
# pipelines often do: the interval is narrow, and wrong. Integrated over, an unknown district is
# taken for one like the others. So the cheapest and the dearest, which are unlike all that the
# model knows, are covered less often, those in between more often, and the average is about right.

coverage = {"unknown, integrated over": [], "replaced by the most frequent": []}
for district in DISTRICTS:
    here = (table["district"] == district).to_numpy()
    one = BinaryTreeGPRegressor(n_members=6, target_transform="log", random_state=0)
    one.fit(table[~here], rent[~here])
    frequent = table["district"][~here].mode()[0]
    variants = (table[here], table[here].assign(district=frequent))
    for shares, rows in zip(coverage.values(), variants, strict=True):
        low, high = one.predict_interval(rows, coverage=0.9).T
        shares.append(100 * np.mean((low < rent[here]) & (rent[here] < high)))

by_price = np.argsort([PRICE[district] for district in DISTRICTS])
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for (name, shares), colour, marker in zip(coverage.items(), (BLUE, ORANGE), "os", strict=True):
    print(f"{name}: {np.mean(shares):.0f} % inside 90 % intervals")
    ax.plot(np.array(shares)[by_price], marker, color=colour, ms=8, label=name)
ax.axhline(90, color=GREY, lw=1, ls=(0, (4, 3)))
ax.set_xticks(range(12), np.array(DISTRICTS)[by_price], rotation=35, ha="right")
ax.set(xlabel="district that was left out, cheapest first", ylabel="inside 90 % intervals, %")
ax.set_ylim(-4, 104)
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)

plt.show()
