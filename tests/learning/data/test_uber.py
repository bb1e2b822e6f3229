"""NCR ride bookings: small files in their original layout, and the real ones where they are."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learning.data.load import load
from learning.errors import DataError
from tests.support.sources import real, table, write


class TestUber:
    HEADER = (
        "Date,Time,Booking ID,Booking Status,Customer ID,Vehicle Type,Pickup Location,Drop Location,Avg VTAT,"
        "Avg CTAT,Booking Value"
    )

    def rows(self, *times_and_minutes: tuple[str, str]) -> list[str]:
        return [
            f'2024-03-23,{time},"""CNR{i}""",Completed,"""CID{i}""",eBike,Palam Vihar,Jhilmil,{minutes},null,237'
            for i, (time, minutes) in enumerate(times_and_minutes)
        ]

    def test_original_csv(self, tmp_path: Path) -> None:
        lines = self.rows(("12:29:38", "2"), ("00:00:01", "null"), ("23:59:59", "1"), ("08:00:00", "27"))
        loaded = table(f"uber:{write(tmp_path / 'ncr_ride_bookings.csv', self.HEADER, *lines)}")
        assert loaded.columns["customer_id"].tolist() == ["CID0", "CID2", "CID3"]
        assert loaded.columns["pickup_location"].tolist() == ["Palam Vihar"] * 3
        assert loaded.columns["hour"].tolist() == [12, 23, 8]
        assert loaded.target == pytest.approx([0.2, 0.1, 2.7])  # the mean is 10

    def test_parquet_with_snake_names(self, tmp_path: Path) -> None:
        path = tmp_path / "bookings.parquet"
        columns = {
            "time": ["07:26:17", "20:33:05"],
            "customer_id": pa.array(["CID1", "CID2"], pa.large_string()),
            "vehicle_type": pa.array(["Auto", "Auto"]).dictionary_encode(),
            "pickup_location": ["Ghitorni", "India Gate"],
            "drop_location": ["South Extension", "Paharganj"],
            "avg_vtat": pa.array([4.0, None], pa.float32()),
        }
        pq.write_table(pa.table(columns), path)
        loaded = table(f"uber:{path}")
        assert loaded.columns["vehicle_type"].tolist() == ["Auto"]
        assert loaded.columns["hour"].tolist() == [7]
        assert loaded.target.tolist() == [1.0]
        del columns["drop_location"]
        pq.write_table(pa.table(columns), path)
        with pytest.raises(DataError, match=r"bookings.parquet: no column 'drop_location'"):
            load(f"uber:{path}")

    def test_errors(self, tmp_path: Path) -> None:
        path = tmp_path / "ncr_ride_bookings.csv"
        for rows, message in [
            (self.rows(("12:29:38", "fast")), "column 'Avg VTAT', line 2: .*'fast'"),
            (self.rows(("12:29:38", "1"), ("noon", "1")), "column 'Time', row 2: 'noon' is not HH:MM:SS"),
            (self.rows(("12:29:38", "null")), "column 'Avg VTAT' is empty in every row"),
        ]:
            write(path, self.HEADER, *rows)
            with pytest.raises(DataError, match=message):
                load(f"uber:{path}")

    # The entropy is the paper's.
    def test_the_real_files(self) -> None:
        loaded = table(f"uber:{real('ncr_uber/ncr_all_150000.parquet')}")
        assert loaded.rows == 139_500
        assert loaded.target.mean() == pytest.approx(1.0, abs=1e-5)
        shares = np.histogram(loaded.target, 10, (0, 3))[0] / loaded.rows
        shares = shares[shares > 0]
        assert -(shares * np.log(shares)).sum() == pytest.approx(1.777, abs=5e-4)
