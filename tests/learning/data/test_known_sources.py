"""Every known source, on small files in its original layout, and on the real files where they are."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghostless.contract.errors import ConfigError
from learning.data.load import load
from learning.data.table import Table
from learning.errors import DataError

KUAIRAND_HEADER = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,long_view,"
    "play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab"
)


def kuairand_row(user: int, video: int, time_ms: int, play: object, duration: object) -> str:
    return f"{user},{video},20220408,1200,{time_ms},1,0,0,0,0,0,1,{play},{duration},0,0,0,0,1"


def table(spec: str) -> Table:
    loaded = load(spec)
    assert isinstance(loaded, Table)
    return loaded


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


class TestKuaiRand:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write(
            tmp_path / "log_standard_4_08_to_4_21_pure.csv",
            KUAIRAND_HEADER,
            kuairand_row(3, 70, 1, 5000, 10_000),
            kuairand_row(3, 70, 1, 5000, 10_000),  # identical: dropped
            kuairand_row(3, 70, 2, 5000, 10_000),  # another time: another view
            kuairand_row(4, 71, 3, 5000, 0),  # no duration: dropped
        )
        write(
            tmp_path / "log_standard_4_22_to_5_08_pure.csv",
            KUAIRAND_HEADER,
            kuairand_row(5, 72, 9, 50_000, 10_000),  # ratio 5 is clipped
        )
        write(tmp_path / "log_random_4_22_to_5_08_pure.csv", KUAIRAND_HEADER, kuairand_row(6, 73, 1, 1, 1))
        return tmp_path

    def test_original_logs(self, folder: Path) -> None:
        loaded = table(f"kuairand:{folder}")
        assert loaded.columns["user_id"].tolist() == [3, 3, 5]
        assert loaded.columns["video_id"].tolist() == [70, 70, 72]
        assert loaded.columns["duration_ms"].tolist() == [10_000, 10_000, 10_000]
        assert loaded.target.tolist() == [0.5, 0.5, 3.0]
        features = {feature.name: (feature.kind, feature.role) for feature in loaded.schema.features}
        assert features == {
            "user_id": ("id", "context"),
            "video_id": ("id", "candidate"),
            "duration_ms": ("bucket", "candidate"),
        }

    def test_the_data_folder_of_the_archive(self, folder: Path, tmp_path: Path) -> None:
        outer = tmp_path / "KuaiRand-Pure"
        outer.mkdir()
        (outer / "data").symlink_to(folder)
        assert table(f"kuairand:{outer}").fingerprint() == table(f"kuairand:{folder}").fingerprint()

    def test_repackaged_parquet(self, tmp_path: Path) -> None:
        columns = {"user_id": [1, 1, 2], "video_id": [5, 5, 6], "play_time_ms": [10, 10, 30], "tab": [1, 1, 0]}
        pq.write_table(pa.table({**columns, "duration_ms": [20, 20, 20]}), tmp_path / "val.parquet")
        pq.write_table(pa.table({**columns, "duration_ms": [40, 40, 0]}), tmp_path / "test.parquet")
        loaded = table(f"kuairand:{tmp_path}")
        assert loaded.target.tolist() == [0.5, 1.5, 0.25]

    def test_duration_from_the_video_features(self, tmp_path: Path) -> None:
        write(
            tmp_path / "log_standard_a.csv",
            "user_id,video_id,play_time_ms",
            "1,7,500",
            "1,8,500",  # unknown video: no duration
            "2,9,500",
        )
        write(
            tmp_path / "video_features_basic_pure.csv",
            "video_id,author_id,video_duration",
            "9,1,2000.0",
            "7,1,1000.0",
        )
        loaded = table(f"kuairand:{tmp_path}")
        assert loaded.columns["video_id"].tolist() == [7, 9]
        assert loaded.target.tolist() == [0.5, 0.25]

    def test_errors_name_file_column_and_line(self, tmp_path: Path) -> None:
        path = tmp_path / "log_standard_a.csv"
        for lines, message in [
            (["user_id,video_id,duration_ms", "1,2,3"], "no column 'play_time_ms'"),
            (["user_id,video_id,play_time_ms", "1,2,3"], "no column 'duration_ms', and no video_features"),
            (
                [KUAIRAND_HEADER, kuairand_row(1, 2, 3, 4, 5), kuairand_row(1, 2, 3, "soon", 5)],
                "column 'play_time_ms', line 3: .*'soon'",
            ),
            ([KUAIRAND_HEADER, kuairand_row(1, 2, 3, "", 5)], "column 'play_time_ms', row 1: value is missing"),
            ([KUAIRAND_HEADER, kuairand_row(1, 2, 3, "inf", 5)], "column 'play_time_ms', row 1: inf is not"),
            ([KUAIRAND_HEADER], "has no rows"),
        ]:
            write(path, *lines)
            with pytest.raises(DataError, match=f"log_standard_a.csv: {message}"):
                load(f"kuairand:{tmp_path}")

    def test_a_folder_without_logs(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="neither log_standard"):
            load(f"kuairand:{tmp_path}")
        with pytest.raises(DataError, match="not a folder"):
            load(f"kuairand:{tmp_path / 'absent'}")


class TestKuaiRec:
    HEADER = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio"

    def test_original_matrix(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "small_matrix.csv",
            self.HEADER,
            "14,148,4381,6067,2020-07-05 05:27:48.378,20200705.0,1593898068.378,0.722103",
            "14,183,11635,6100,,,,144.5",  # the original has rows with no time
        )
        loaded = table(f"kuairec:{path}")
        assert loaded.columns["user_id"].tolist() == [14, 14]
        assert loaded.columns["video_id"].tolist() == [148, 183]
        assert loaded.columns["duration_ms"].tolist() == [6067, 6100]
        assert loaded.target == pytest.approx([0.722103, 3.0])

    def test_headerless_text_in_a_folder(self, tmp_path: Path) -> None:
        write(tmp_path / "random.txt", "14,10070,1.3318276580959", "15,2517,17.5")
        loaded = table(f"kuairec:{tmp_path}")
        assert list(loaded.columns) == ["user_id", "video_id"]
        assert loaded.columns["user_id"].tolist() == [14, 15]
        assert loaded.target == pytest.approx([1.3318276, 3.0])

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"expected one of big_matrix.csv.* found none"):
            load(f"kuairec:{tmp_path}")
        text = write(tmp_path / "random.txt", "14,10070,1.5", "14,x,1.5")
        with pytest.raises(DataError, match=r"random.txt: column 'video_id', line 2: .*'x'"):
            load(f"kuairec:{text}")
        write(tmp_path / "big_matrix.csv", self.HEADER)
        with pytest.raises(DataError, match=r"found big_matrix.csv and random.txt; name the file"):
            load(f"kuairec:{tmp_path}")


class TestWeChat:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write(
            tmp_path / "user_action.csv",
            "userid,feedid,date_,device,read_comment,comment,like,play,stay,click_avatar,forward,follow,favorite",
            "8,71474,1,1,0,0,1,500,638,0,0,0,0",
            "8,73916,1,1,0,0,0,250000,9000,0,0,0,0",
            "9,71474,2,2,0,0,0,15000,16000,0,0,0,0",
            "9,50282,2,2,0,0,0,15000,16000,0,0,0,0",
        )
        write(
            tmp_path / "feed_info.csv",
            "feedid,authorid,videoplayseconds,description,ocr,asr,bgm_song_id,bgm_singer_id",
            '73916,4,25,"8 9, 10",,,12.0,5.0',
            "71474,2,10,,,,,",
            "50282,3,0,,,,,",
        )
        return tmp_path

    def test_play_is_milliseconds_and_length_seconds(self, folder: Path) -> None:
        loaded = table(f"wechat:{folder}")
        assert loaded.columns["user_id"].tolist() == [8, 8, 9]
        assert loaded.columns["video_id"].tolist() == [71474, 73916, 71474]
        assert loaded.columns["author_id"].tolist() == [2, 4, 2]
        assert loaded.columns["duration_ms"].tolist() == [10_000, 25_000, 10_000]
        assert loaded.target == pytest.approx([0.05, 3.0, 1.5])

    def test_errors(self, folder: Path) -> None:
        feed = folder / "feed_info.csv"
        write(feed, "feedid,authorid,videoplayseconds", "73916,4,25")
        with pytest.raises(DataError, match=r"user_action.csv: column 'feedid', row 1: feed 71474 is not in feed"):
            load(f"wechat:{folder}")
        write(feed, "feedid,videoplayseconds", "73916,25")
        with pytest.raises(DataError, match=r"feed_info.csv: no column 'authorid'"):
            load(f"wechat:{folder}")
        feed.unlink()
        with pytest.raises(DataError, match=r"feed_info.csv: cannot be read"):
            load(f"wechat:{folder}")


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


class TestGenerated:
    def test_rows(self) -> None:
        assert load("synthetic:300").rows == 300
        assert load("synthetic:300", rows=100).rows == 100
        assert load("synthetic", rows=200).rows == 200
        assert load("toy", rows=50).rows == 50
        assert load("synthetic:300").fingerprint() == load("synthetic:300").fingerprint()

    @pytest.mark.parametrize("spec", ["synthetic:many", "synthetic:0", "synthetic:-5", "kuairand", "uber:"])
    def test_what_makes_no_sense(self, spec: str) -> None:
        with pytest.raises(ConfigError, match=spec):
            load(spec)

    def test_an_own_schema_takes_no_other(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="brings its own schema"):
            load("toy", schema=tmp_path / "schema.toml")

    def test_rows_must_be_some(self) -> None:
        with pytest.raises(ConfigError, match="rows is 0"):
            load("toy", rows=0)


def real(path: str) -> Path:
    folder = os.environ.get("GHOSTLESS_DATA")
    if not folder or not (Path(folder) / path).exists():
        pytest.skip(f"no real {path}: run `GHOSTLESS_DATA=FOLDER make test`, FOLDER being the one that holds {path}")
    return Path(folder) / path


class TestRealFiles:
    """Counts as the files' own description has them; entropies as the paper's."""

    def test_kuairand(self) -> None:
        loaded = table(f"kuairand:{real('kuairand_pure')}")
        # 94,784 + 133,545 rows, 5,460 of them identical copies, 3,568 more of duration 0.
        assert loaded.rows == 94_784 + 133_545 - 5_460 - 3_568
        assert loaded.target.min() == 0.0
        assert loaded.target.max() == 3.0
        assert (loaded.columns["duration_ms"] > 0).all()

    def test_kuairec(self) -> None:
        loaded = table(f"kuairec:{real('kuairec_sample')}")
        assert loaded.rows == 117_113
        assert loaded.target.max() == 3.0

    def test_uber(self) -> None:
        loaded = table(f"uber:{real('ncr_uber/ncr_all_150000.parquet')}")
        assert loaded.rows == 139_500
        assert loaded.target.mean() == pytest.approx(1.0, abs=1e-5)
        shares = np.histogram(loaded.target, 10, (0, 3))[0] / loaded.rows
        shares = shares[shares > 0]
        assert -(shares * np.log(shares)).sum() == pytest.approx(1.777, abs=5e-4)
