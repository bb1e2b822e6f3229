"""WeChat Big Data Challenge: small files in its original layout."""

from pathlib import Path

import pytest

from learning.data.load import load
from learning.errors import DataError
from tests.support.sources import table, write


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
