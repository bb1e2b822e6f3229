"""What is compared is there, is what its name says, and is made once."""

from pathlib import Path

from ghostless.contract import repository
from loadtest.compare import trained_models
from loadtest.compare.variants import Variant
from serving.engines.embedded import load_model


def test_every_way_to_be_uncertain_is_exported_from_networks_of_one_shape(variants: list[Variant]) -> None:
    kinds = ["deterministic", "vbll", "ensemble", "five-call", "mc-dropout-fixed", "mc-dropout"]
    assert [variant.kind for variant in variants] == kinds
    features, methods = set(), []
    for variant in variants:
        for name, entry in repository.scan(variant.repository).items():
            model = load_model(entry.model_file(entry.in_service), name, entry.in_service, warm_up_rows=(1,))
            features.add(model.metadata.features)
            methods.append(model.metadata.method)
    assert methods == ["deterministic", "vbll", "ensemble", *["deterministic"] * 5, "mc-dropout-fixed", "mc-dropout"]
    assert len(features) == 1
    assert variants[3].members == tuple(repository.scan(variants[3].repository))


def test_what_is_there_is_not_made_again(folder: Path, variants: list[Variant]) -> None:
    said: list[str] = []
    assert trained_models.prepare(folder, cores=1, say=said.append, heads=("cr",)) == variants
    assert said == []
