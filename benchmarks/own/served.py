"""A trained model as it is served: exported, verified, loaded by the server's engine, and judged on rows that were not
used for fitting."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.truth.judge import Forecast, Judgement, judge
from export import publish, rows
from export.graph import Networks
from export.options import ExportOptions
from export.verification import Report
from ghostless.contract import metadata, repository
from ghostless.contract.pair_test import PairTest
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.trained import TrainedModel
from loadtest.figures import Figures
from serving.engines.embedded import load_model

_ROWS = 2048
# Allowed error of the 50, 80 and 90% coverage in percentage points, as in `bench truth`.
MOST_POINTS = 1.5


@dataclass(frozen=True)
class Judged:
    """The judgement of the exported graph's answers, the report of its export, and the pair test."""

    judgement: Judgement
    report: Report
    pairs: PairTest | None

    @property
    def batch_error(self) -> float:
        """The largest difference between a row alone and the same row in a batch."""
        return max(check.value for check in self.report.checks if "a row alone" in check.name)


def judged(checkpoint: Checkpoint, name: str, root: Path, table: Table) -> Judged:
    """Export a model and judge the answers of the exported file."""
    version, report = publish.export_model(Networks((checkpoint,)), name, root, ExportOptions())
    loaded = load_model(repository.find(root, name).model_file(version), name, version, (1,))
    wanted = (metadata.MEAN, metadata.CDF)
    answers = [loaded.run(rows.fed(dict(part.columns)), wanted) for part in table.batches(_ROWS)]
    mean, cdf = (np.concatenate([answer[output] for answer in answers]) for output in wanted)
    target = checkpoint.schema.target
    forecast = Forecast(np.asarray(loaded.metadata.knots), cdf, mean, table.target)
    pairs = TrainedModel((checkpoint,)).judge_pairs(table)
    return Judged(judge(forecast, target.low, target.high), report, pairs)


def add_figures(figures: Figures, name: str, found: Judged) -> None:
    """Add the figures whose bounds apply to every served model."""
    assert found.report.largest_error is not None
    figures.add(f"{name}: ONNX against torch, largest relative error", found.report.largest_error, "<= 1e-4")
    figures.add(f"{name}: a row alone against a batch of 4,096", found.batch_error, "<= 1e-5")
    figures.add(
        f"{name}: coverage, points off, worst of 50/80/90%", found.judgement.coverage_error(), f"<= {MOST_POINTS}"
    )
    if found.pairs is not None:
        refuted = sum(figure.refutes for figure in found.pairs.figures)
        figures.add(f"{name}: figures of the pair test that refute the split", refuted, "<= 0")
