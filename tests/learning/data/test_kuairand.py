"""KuaiRand: small files in its original layout, and the real ones where they are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learning.data.load import load
from learning.errors import DataError
from tests.support.sources import real, table, write

KUAIRAND_HEADER = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,long_view,"
    "play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab"
)


def kuairand_row(user: int, video: int, time_ms: int, play: object, duration: object) -> str:
    return f"{user},{video},20220408,1200,{time_ms},1,0,0,0,0,0,1,{play},{duration},0,0,0,0,1"


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

    # Counts as the files' own description has them.
    def test_the_real_files(self) -> None:
        loaded = table(f"kuairand:{real('kuairand_pure')}")
        # 94,784 + 133,545 rows, 5,460 of them identical copies, 3,568 more of duration 0.
        assert loaded.rows == 94_784 + 133_545 - 5_460 - 3_568
        assert loaded.target.min() == 0.0
        assert loaded.target.max() == 3.0
        assert (loaded.columns["duration_ms"] > 0).all()
