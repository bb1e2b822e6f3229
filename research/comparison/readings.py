"""How predictions are made with trained networks: in one pass, conformalised, with dropout or as an ensemble."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ghostless.heads.predictive import Predictive
from ghostless.heads.quantile import QuantileHead
from learning.checkpoint import Checkpoint
from learning.data.table import Dataset
from learning.linear_pool import LinearPool
from learning.model import Model, Network, Predict
from learning.training import INFERENCE_ROWS, Encoded
from research.baselines import interpolation
from research.baselines.conformalised import conformalise
from research.baselines.dropout import mc_dropout
from research.comparison.cache import Reconstruction
from research.comparison.methods import Reading

# Passes of MC dropout. More passes change its figures by less than a seed does, and each costs a forward pass and a
# CDF.
PASSES = 10


def reader(
    reading: Reading, checkpoints: list[Checkpoint], held_out: Dataset, reconstruction: Reconstruction
) -> Predict:
    """Returns a function that predicts encoded rows. held_out: rows that no network was trained on, for CQR."""
    first = checkpoints[0]
    once = [_single(checkpoint.network.eval(), reconstruction) for checkpoint in checkpoints]
    if reading == "conformal":
        rows = Encoded.of(held_out, first.encoding).batches(INFERENCE_ROWS)
        read = interpolation.read if reconstruction == "paper" else QuantileHead.read
        return conformalise(first.model, rows, read)
    if reading == "dropout":
        return mc_dropout(first.network, once[0], PASSES)
    if reading == "ensemble":
        return lambda batch: LinearPool.equal(tuple(predict(batch) for predict in once))
    return once[0]


def _single(network: Network, reconstruction: Reconstruction) -> Predict:
    if reconstruction == "own" or not isinstance(network, Model) or not isinstance(network.head, QuantileHead):
        return network.predict
    model, head = network, network.head

    @torch.no_grad()
    def predict(batch: Mapping[str, Tensor]) -> Predictive:
        phi = model.phi(batch)
        return interpolation.read(head, head.posterior.outputs(phi), phi)

    return predict
