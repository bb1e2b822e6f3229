import numpy as np
import pytest

from learning.data.table import Table
from learning.evaluation import evaluate
from learning.schema import Feature, Schema, Target
from learning.target_notes import target_notes
from learning.training import Trainer
from tests.support.training import brief_training, small_model


def lognormal(rows: int, high: float) -> Table:
    random = np.random.default_rng(0)
    schema = Schema((Feature("x", "number", type="float32"),), Target("y", "s", 0.0, high))
    x = random.normal(size=rows).astype(np.float32)
    y = np.clip(np.exp(0.5 * x + 0.5 * random.normal(size=rows)), 0.0, high).astype(np.float32)
    return Table(schema, {"x": x}, y)


@pytest.mark.parametrize(
    ("high", "options", "expected"),
    [
        (12.0, {"bins": 40}, ["range 0 to 12, 1.25%", "not calibrated"]),
        (1000.0, {"bins": 40}, ["range 0 to 1000", "of the schema's range", "not calibrated"]),
        (1000.0, {"binning": "uniform"}, ["range", "of the schema's range", "in one bin", "not calibrated"]),
    ],
)
def test_notes_name_what_a_user_can_change(high: float, options: dict[str, object], expected: list[str]) -> None:
    config = brief_training(epochs=1, calibration=0.0)
    run = Trainer(lognormal(2_000, high), "y", small_model(head="cr", **options), config).run()
    notes = target_notes(run, 0.0125)
    assert len(notes) == len(expected)
    assert all(part in note for note, part in zip(notes, expected, strict=True))


def test_few_calibration_rows_are_said() -> None:
    config = brief_training(epochs=1, calibration=0.2)
    run = Trainer(lognormal(2_000, 12.0), "y", small_model(head="cr", bins=40), config).run()
    assert "only 320 rows" in target_notes(run, 0.0)[-1]


@pytest.mark.parametrize("head", ["cr", "qr"])
def test_the_targets_unit_changes_nothing_but_the_unit(head: str) -> None:
    """Powers of two, so that float32 rounds alike and the whole run must agree."""
    plain = lognormal(3_000, 12.0)
    config = brief_training(epochs=2, calibration=0.2)
    judged = []
    for unit in (1.0, 4096.0, 1 / 64):
        target = Target("y", "s", 0.0, 12.0 * unit)
        table = Table(Schema(plain.schema.features, target), plain.columns, plain.target * np.float32(unit))
        trainer = Trainer(table, "y", small_model(head=head), config)
        result = evaluate(trainer.run(), trainer.test).metrics()  # type: ignore[arg-type]  # there is a test part
        judged.append((result.nll, result.crps / unit, result.rmse / unit, result.pit_ks))
    assert judged[1] == pytest.approx(judged[0], rel=1e-4)
    assert judged[2] == pytest.approx(judged[0], rel=1e-4)
