"""Shares, rows and cold users of an experiment."""

import numpy as np
import pytest

from ghostless.contract.errors import ConfigError
from research.active.setup import Setup


class TestSetup:
    def test_labels_go_by_steps(self) -> None:
        assert Setup("synthetic").labels(1000) == [200, 300, 400, 500, 600, 700]

    @pytest.mark.parametrize("wrong", [{"start": 0.0}, {"start": 0.8}, {"stop": 1.2}, {"step": 0.0}])
    def test_shares_must_make_sense(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ConfigError, match="--start"):
            Setup("synthetic", **wrong)  # type: ignore[arg-type]  # shares, checked by Setup

    def test_pool_test_and_cold_users(self) -> None:
        setup = Setup("synthetic:3000", pool_rows=1000, test_rows=200, cold=2)
        material = setup.material(0)
        assert (material.pool.rows, material.test.rows) == (1000, 200)
        users, counts = np.unique(material.pool.columns["user_id"], return_counts=True)
        seen = dict(zip(users.tolist(), counts.tolist(), strict=True))
        expected = [seen.get(user, 0) <= 2 for user in material.test.columns["user_id"].tolist()]
        assert material.cold.tolist() == expected
        assert 0 < sum(expected) < 200
