"""Customers and their transactions: from a raw CSV with text, dates and missing values to a report in one command.

    python examples/customers.py customers.csv
    midam fit customers.csv --bag-column customer --label-column fraud --impute median --out runs/customers
    python examples/customers.py customers.csv --trees runs/customers

The first command makes the table: 2000 customers, about 30 000 transactions, fraud for 2.6% of the customers. A fraud
is a few consecutive payments, at night, on the web, to merchants that other customers pay too; each of these properties
alone gives little information. The second command trains a model and writes runs/customers/report.html: merchant and
channel become categories, the time is split into its parts, `transaction_id` is left out. The third command prints the
average precision (AP) on the test customers, next to the AP of trees on features made by hand: one-hot in pandas, then
mean, minimum, maximum and deviation for each customer.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score

MERCHANTS = ("grocer", "fuel", "cafe", "books", "games", "travel", "jewels", "phones", "gifts", "coins")
USUAL = np.array([30, 15, 15, 8, 8, 6, 3, 6, 6, 3]) / 100
STOLEN = np.array([2, 2, 2, 4, 20, 10, 15, 20, 10, 15]) / 100
CHANNELS = ("shop", "web", "app", "phone")
_CUSTOMERS, _FRAUDS, _YEAR = 2000, 52, 365


def make_table(seed: int = 0) -> pd.DataFrame:
    """Return the transactions of the customers, in the order of time."""
    return make_payments(seed).drop(columns="stolen")


def make_payments(seed: int = 0) -> pd.DataFrame:
    """Return the table with a last column `stolen`: the payments that are the fraud, which no model is told."""
    rng = np.random.default_rng(seed)
    frauds = set(rng.choice(_CUSTOMERS, _FRAUDS, replace=False).tolist())
    parts = [_transactions(rng, number, fraud=number in frauds) for number in range(_CUSTOMERS)]
    table = pd.concat(parts).sort_values("time", kind="stable").reset_index(drop=True)
    table.insert(0, "transaction_id", 100_000 + np.arange(len(table)))
    table["time"] = table["time"].dt.strftime("%Y-%m-%d %H:%M")
    for column, share in (("amount", 0.03), ("merchant", 0.04), ("distance_km", 0.1)):
        table.loc[rng.random(len(table)) < share, column] = None
    return table


def _transactions(rng: np.random.Generator, number: int, *, fraud: bool) -> pd.DataFrame:
    count = 2 + rng.poisson(13)
    days = rng.uniform(0, _YEAR, count)
    hours = rng.normal(14, 4, count) % 24
    night = rng.random(count) < 0.06  # customers who usually pay at night are no fraud
    hours[night] = rng.uniform(0, 5, int(night.sum()))
    merchants = rng.choice(len(MERCHANTS), count, p=USUAL)
    channels = rng.choice(len(CHANNELS), count, p=(0.5, 0.25, 0.2, 0.05))
    amounts = rng.lognormal(3.2, 0.9, count)
    if fraud:
        stolen = rng.choice(count, min(count, rng.integers(2, 5)), replace=False)
        days[stolen] = rng.uniform(_YEAR - 40, _YEAR) + rng.uniform(0, 1, len(stolen))
        hours[stolen] = rng.uniform(0, 5, len(stolen))
        merchants[stolen] = rng.choice(len(MERCHANTS), len(stolen), p=STOLEN)
        channels[stolen] = np.where(rng.random(len(stolen)) < 0.8, 1, channels[stolen])
        amounts[stolen] *= rng.lognormal(0.8, 0.4, len(stolen))
    times = pd.Timestamp("2025-01-01") + pd.to_timedelta(np.floor(days) * 24 + hours, unit="h")
    return pd.DataFrame(
        {
            "customer": f"C{number:04d}",
            "time": times,
            "merchant": np.array(MERCHANTS)[merchants],
            "channel": np.array(CHANNELS)[channels],
            "amount": amounts.round(2),
            "distance_km": rng.gamma(1.5, 8, count).round(1),
            "card_present": np.where(channels == 0, "yes", "no"),
            "fraud": "yes" if fraud else "no",
            "stolen": np.isin(np.arange(count), stolen if fraud else []),
        }
    )


def by_hand(table: pd.DataFrame) -> pd.DataFrame:
    """Return features of the customers as a user would make them in pandas."""
    times = pd.to_datetime(table["time"])
    rows = table[["amount", "distance_km"]].assign(hour=times.dt.hour, weekday=times.dt.day_of_week)
    rows["card_present"] = (table["card_present"] == "yes").astype(float)
    rows = rows.join(pd.get_dummies(table[["merchant", "channel"]], dtype=float))
    found = rows.groupby(table["customer"]).agg(["mean", "min", "max", "std"]).fillna(0.0)
    found.columns = [f"{column}_{what}" for column, what in found.columns]
    return found


def compare(table: pd.DataFrame, run: Path) -> None:
    """Print the AP of a run and of the trees on the test customers of the run."""
    scores = pd.read_csv(run / "predictions.csv", dtype={"bag": str}).set_index("bag")
    features, label = by_hand(table), table.groupby("customer")["fraud"].first() == "yes"
    test = scores.index[scores["split"] == "test"]
    train = scores.index[scores["split"] != "test"]  # the trees need no validation customers
    print(f"{len(test)} test customers, {int(label[test].sum())} defrauded")
    print(f"midam: AP {average_precision_score(label[test], scores.loc[test, 'score']):.3f}")
    for trees in (ExtraTreesClassifier(500, random_state=0), HistGradientBoostingClassifier(random_state=0)):
        guess = trees.fit(features.loc[train], label[train]).predict_proba(features.loc[test])[:, 1]
        print(f"{type(trees).__name__} by hand: AP {average_precision_score(label[test], guess):.3f}")


def main() -> None:
    """Make the table, or compare a run with trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trees", type=Path, metavar="RUN")
    options = parser.parse_args()
    if options.trees is not None:
        compare(pd.read_csv(options.table), options.trees)
        return
    table = make_table(options.seed)
    table.to_csv(options.table, index=False)
    share = table.groupby("customer")["fraud"].first().eq("yes").mean()
    print(f"{options.table}: {table['customer'].nunique()} customers, {len(table)} transactions, {share:.1%} defrauded")


if __name__ == "__main__":
    main()
