"""Configurations of small models and short trainings."""

from learning.config import ModelConfig, TrainConfig

SMALL = {"levels": 20, "groups": 5, "bins": 12, "rank": 4, "hidden": (16, 8)}
BRIEF = {"epochs": 2, "batch_rows": 256}


def small_model(**options: object) -> ModelConfig:
    return ModelConfig(**{**SMALL, **options})  # type: ignore[arg-type]  # options of many types, checked by ModelConfig


def brief_training(**options: object) -> TrainConfig:
    return TrainConfig(**{**BRIEF, **options})  # type: ignore[arg-type]  # as above
