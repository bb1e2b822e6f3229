"""A served head over a third-party backbone: one that is trained here, or a frozen one whose features are given."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ghostless.heads.feature_input import FeatureInput
from learning.config import FROZEN
from learning.data.encoding import z_key
from learning.model import Model, Network
from learning.own import torch_ranker
from learning.schema import Schema

# Key of the frozen ranker's features [n, width] in an encoded batch.
RANKER_KEY = "ranker/features"
# Entry of the table sizes for the width of the frozen ranker's features.
RANKER_WIDTH = RANKER_KEY


def feature_inputs(schema: Schema, rows: Mapping[str, int]) -> tuple[FeatureInput, ...]:
    """The features as they are described to a PyTorch backbone. rows: number of table rows by feature."""
    return tuple(
        FeatureInput(feature.name, "id", feature.role, rows[feature.name])
        if feature.is_coded
        else FeatureInput(feature.name, "number", feature.role, 0)
        for feature in schema.features
    )


class TorchRankerNetwork(Network):
    """phi = backbone(features), trained with the head. In training, some known ids are replaced by the unknown one, as
    in the built-in backbone, so that row 0 of the tables is trained. Subclasses add the head."""

    ranker: nn.Module

    def build_backbone(self, rows: Mapping[str, int], pieces: Mapping[str, int]) -> None:
        self.inputs = feature_inputs(self.schema, rows)
        self.ranker, self._width = torch_ranker.build(self.config.own, self.config.own_options, self.inputs)

    @property
    def features(self) -> int:
        return self._width

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.config.hidden

    def tables(self) -> list[nn.Parameter]:
        found = {
            id(module.weight): module.get_parameter("weight")
            for module in self.ranker.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.weight.requires_grad
        }
        return list(found.values())

    def activations(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        return [self.phi(batch)]

    def encoded_inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The entries of an encoded batch that the backbone gets, by the names of the features."""
        return {item.name: batch[item.name] if item.kind == "id" else batch[z_key(item.name)] for item in self.inputs}

    def phi(self, batch: Mapping[str, Tensor]) -> Tensor:
        given = self.encoded_inputs(batch)
        if self.training and self.config.id_dropout:
            for item in self.inputs:
                if item.kind == "id":
                    kept = torch.rand(given[item.name].shape) >= self.config.id_dropout
                    given[item.name] = given[item.name] * kept
        output: Tensor = self.ranker(given)
        return output

    @torch.no_grad()
    def observe(self, batches: Iterable[Mapping[str, Tensor]]) -> None:
        show = getattr(self.ranker, "observe", None)
        if show is not None:
            for batch in batches:
                show(self.encoded_inputs(batch))


class TorchRankerModel(TorchRankerNetwork, Model):
    """A third-party backbone under a head that can be served."""


class FrozenRankerModel(Model):
    """phi = the features that a frozen ranker computed, standardised; they are part of the encoded batch.

    Weights of D such features have a prior standard deviation of prior_scale / sqrt(D), so that the output has standard
    deviation prior_scale. With prior_scale itself, a head over 129 features overfitted 4,500 rows: NLL was 0.6% higher
    on fresh rows (synthetic world; between 1 / sqrt(D) and a third of it there was no difference).
    """

    def build_backbone(self, rows: Mapping[str, int], pieces: Mapping[str, int]) -> None:
        self._width = rows[RANKER_WIDTH]
        self.config = replace(self.config, prior_scale=self.config.prior_scale / math.sqrt(self._width))

    @property
    def features(self) -> int:
        return self._width

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.config.hidden

    def tables(self) -> list[nn.Parameter]:
        return []

    def activations(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        return [self.phi(batch)]

    def phi(self, batch: Mapping[str, Tensor]) -> Tensor:
        return batch[RANKER_KEY]


def model_class(own: str) -> type[Model]:
    """The class of a model whose configuration has this `own`."""
    if not own:
        return Model
    return FrozenRankerModel if own == FROZEN else TorchRankerModel
