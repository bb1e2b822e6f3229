"""Names in the cache: the same for the same work, other for any other."""

from dataclasses import dataclass, replace
from pathlib import Path

from learning.config import ModelConfig, TrainConfig
from learning.json_files import write_atomically
from research.comparison.cache import Cache, Judgement, Training

TRAINING = Training(ModelConfig(head="cr"), TrainConfig(seed=1))


def test_anything_that_matters_makes_another_name(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "f" * 64)
    trainings = [
        TRAINING,
        replace(TRAINING, model=ModelConfig(head="cr", bins=20)),
        replace(TRAINING, train=TrainConfig(seed=2)),
        replace(TRAINING, curve=True),
    ]
    judgements = [
        Judgement("single", (TRAINING,)),
        Judgement("dropout", (TRAINING,)),
        Judgement("single", (TRAINING,), part="validation"),
        Judgement("single", (TRAINING,), reconstruction="paper"),
        Judgement("ensemble", tuple(trainings)),
    ]
    names = [cache.run(training) for training in trainings] + [cache.judgement(j) for j in judgements]
    assert len(set(names)) == len(names)
    assert cache.run(TRAINING) == Cache(tmp_path, "f" * 64).run(Training(ModelConfig(head="cr"), TrainConfig(seed=1)))
    assert cache.run(TRAINING) != Cache(tmp_path, "e" * 64).run(TRAINING)


def test_an_option_added_later_leaves_old_names_as_they_are(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Longer(TrainConfig):
        added_later: int = 7

    cache = Cache(tmp_path, "f" * 64)
    assert cache.run(replace(TRAINING, train=Longer(seed=1))) == cache.run(TRAINING)
    assert cache.run(replace(TRAINING, train=Longer(seed=1, added_later=8))) != cache.run(TRAINING)


def test_a_judgement_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "f" * 64)
    judgement = Judgement("single", (TRAINING,))
    assert cache.judged(judgement) is None
    write_atomically(cache.judgement(judgement), {"nll": 1.5})
    assert cache.judged(judgement) == {"nll": 1.5}
    assert [file.name for file in cache.judgement(judgement).parent.iterdir()] == [cache.judgement(judgement).name]
