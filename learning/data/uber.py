"""Uber ride bookings of Delhi's capital region, 2024: time until the driver arrives, relative to the mean.

Original layout: ncr_ride_bookings.csv. Also supported: a Parquet file of the same data with lower_snake names.
"""

from pathlib import Path

import numpy as np

from learning.data.columns import clip, clipped_share, numbers, values
from learning.data.files import read_csv, read_parquet
from learning.data.table import Array, Table
from learning.errors import DataError
from learning.schema import Feature, Schema, Target, Type

UBER_SCHEMA = Schema(
    (
        Feature("customer_id", kind="id", role="context", type="string", embedding=32),
        Feature("hour", kind="id", role="context", type="int64", embedding=16),
        Feature("vehicle_type", kind="id", role="candidate", type="string", embedding=16),
        Feature("pickup_location", kind="id", role="candidate", type="string", embedding=16),
        Feature("drop_location", kind="id", role="candidate", type="string", embedding=16),
    ),
    Target("arrival_ratio", unit="share of the mean arrival time", low=0.0, high=3.0),
)

_CSV_TYPES: dict[str, Type] = {
    "Time": "string",
    "Customer ID": "string",
    "Vehicle Type": "string",
    "Pickup Location": "string",
    "Drop Location": "string",
    "Avg VTAT": "float32",
}


def load_uber(path: Path) -> Table:
    """Read the bookings that have an arrival time (avg_vtat); the target is avg_vtat / mean(avg_vtat) in [0, 3]."""
    names = {name: name.lower().replace(" ", "_") for name in _CSV_TYPES}
    if path.suffix == ".parquet":
        bookings = read_parquet(path, list(names.values()))
        stored = {name: name for name in names.values()}
    else:
        bookings = read_csv(path, _CSV_TYPES)
        stored = {snake: name for name, snake in names.items()}
    # In the published CSV, every id is enclosed in three quotes.
    columns = {
        name: np.strings.strip(values(bookings[stored[name]], stored[name], "string", path), '"')
        for name in ("customer_id", "vehicle_type", "pickup_location", "drop_location")
    }
    columns["hour"] = _hour(values(bookings[stored["time"]], stored["time"], "string", path), stored["time"], path)
    minutes = numbers(bookings[stored["avg_vtat"]], stored["avg_vtat"], path, missing_ok=True)
    arrived = ~np.isnan(minutes)  # bookings cancelled before the driver arrived have no time
    if not arrived.any():
        raise DataError(f"{path}: column '{stored['avg_vtat']}' is empty in every row")
    ratio = minutes[arrived] / minutes[arrived].mean()
    columns = {name: column[arrived] for name, column in columns.items()}
    target = UBER_SCHEMA.target
    return Table(UBER_SCHEMA, columns, clip(ratio, target), clipped_share(ratio, target))


def _hour(times: Array, name: str, path: Path) -> Array:
    """Hours of strings like 07:26:17."""
    hours = np.strings.partition(times, ":")[0]
    wrong = ~np.isin(hours, [f"{hour:02d}" for hour in range(24)])
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{path}: column '{name}', row {row + 1}: '{times[row]}' is not HH:MM:SS")
    numbers: Array = hours.astype(np.int64)
    return numbers
