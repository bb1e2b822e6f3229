"""KuaiRec: small files in its original layout, and the real ones where they are."""

from pathlib import Path

import pytest

from learning.data.load import load
from learning.errors import DataError
from tests.support.sources import real, table, write


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

    def test_the_real_files(self) -> None:
        loaded = table(f"kuairec:{real('kuairec_sample')}")
        assert loaded.rows == 117_113
        assert loaded.target.max() == 3.0
