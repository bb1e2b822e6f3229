"""The exported graph of a trained model, run by ONNX Runtime as the server runs it: what the bench judges is what a
client would receive, not what PyTorch computes."""

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import graph, options, rows
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import metadata
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from serving.engines.embedded import CPU, session_options

# Rows of one call.
CALL_ROWS = 4096
_MOMENTS = {
    "mean": metadata.MEAN,
    "epistemic": metadata.EPISTEMIC,
    "candidate": metadata.EPISTEMIC_CANDIDATE,
    "last_layer": metadata.EPISTEMIC_LAST_LAYER,
}


class ServedGraph:
    """knots [k]: where `cdf` is read; an atom's value appears twice."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        networks = Networks.ensemble([checkpoint])
        layout = options.resolve(ExportOptions(), checkpoint, calibration=networks.calibration)
        model = graph.build(networks, layout, "fp32").model({})
        self._session = ort.InferenceSession(model.SerializeToString(), session_options(), providers=[CPU])
        self.knots: NDArray[np.float64] = layout.knots

    def cdf(self, table: Table) -> NDArray[np.float64]:
        """The calibrated CDF at the knots, [n, k]."""
        (heights,) = self._run(table, [metadata.CDF])
        return heights.astype(np.float64)

    def moments(self, table: Table) -> dict[str, NDArray[np.float32]]:
        """Mean and variances, [n] each."""
        return dict(zip(_MOMENTS, self._run(table, list(_MOMENTS.values())), strict=True))

    def _run(self, table: Table, outputs: list[str]) -> list[NDArray[np.float32]]:
        calls = [self._session.run(outputs, rows.fed(dict(part.columns))) for part in table.batches(CALL_ROWS)]
        return [np.concatenate(parts) for parts in zip(*calls, strict=True)]
