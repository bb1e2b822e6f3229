"""A third-party PyTorch backbone: found by its import path, built from the features, and checked before training.

The class is called with the features (ghostless.heads.FeatureInput) and its own keyword arguments:

    class Ranker(nn.Module):
        def __init__(self, features: Sequence[FeatureInput], width: int = 64) -> None: ...
        def forward(self, features: dict[str, Tensor]) -> Tensor:  # [n] each -> float32 [n, width]

A method `observe(features)`, if there is one, gets all training rows once before training, in their order and in
batches, to fill buffers such as the last items of every user. An attribute `preserves_distances = True` says that
inputs far from each other have outputs far from each other.
"""

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ghostless.contract.errors import ConfigError
from ghostless.heads.feature_input import FeatureInput

# Number of rows on which a new backbone is tried; more than 1, so that a wrong squeeze is detected.
TRIED_ROWS = 3


def is_import_path(text: str) -> bool:
    """Whether a value of --backbone names a class instead of a built-in backbone."""
    return ":" in text


def parse_options(words: Sequence[str]) -> str:
    """`name=value` words as a JSON object; a value that is not JSON is a string."""
    options: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--backbone-option is '{word}', expected NAME=VALUE as in width=64")
        try:
            options[name] = json.loads(text)
        except ValueError:
            options[name] = text
    return json.dumps(options, sort_keys=True)


def find_class(path: str) -> type[nn.Module]:
    """The class with an import path `package.module:Class`; modules of the working directory are found, too."""
    module_name, _, class_name = path.partition(":")
    if not module_name or not class_name.isidentifier():
        raise ConfigError(f"backbone '{path}' is no import path, expected package.module:Class")
    folder = os.getcwd()
    # Appended at the end, so that no file of the working directory hides an installed package.
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"backbone '{path}' can't be imported: {error}; run the command in the folder that contains "
            f"{module_name.partition('.')[0]}, or install it"
        ) from error
    finally:
        if added:
            sys.path.remove(folder)
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ConfigError(f"backbone '{path}' is not a torch.nn.Module, but {_described(found)}")
    return found


def build(path: str, options: str, features: Sequence[FeatureInput]) -> tuple[nn.Module, int]:
    """An untrained backbone and the width of its output, which is found by running it on a few rows."""
    made = find_class(path)
    try:
        backbone = made(tuple(features), **json.loads(options))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}(features, **{options}) failed: {error}; see --backbone-option") from error
    was_training = backbone.training
    with torch.no_grad():
        output = run(backbone.eval(), path, example(features, TRIED_ROWS))
    backbone.train(was_training)
    return backbone, output.shape[1]


def example(features: Sequence[FeatureInput], rows: int) -> dict[str, Tensor]:
    """A batch of unknown ids and of numbers at their median."""
    return {
        feature.name: torch.zeros(rows, dtype=torch.int64 if feature.kind == "id" else torch.float32)
        for feature in features
    }


def run(backbone: nn.Module, path: str, batch: Mapping[str, Tensor]) -> Tensor:
    """The backbone's output [n, width], checked."""
    rows = len(next(iter(batch.values())))
    try:
        output = backbone(dict(batch))
    except Exception as error:
        raise ConfigError(f"{path} failed on {rows} rows: {type(error).__name__}: {error}") from error
    if not isinstance(output, Tensor):
        raise ConfigError(f"{path} returns {_described(output)}, expected one tensor [rows, width]")
    if output.dim() != 2 or len(output) != rows:
        raise ConfigError(
            f"{path} returns a tensor of shape {list(output.shape)} for {rows} rows, expected [{rows}, width]; "
            "return the features below your output layer, one row of them per input row"
        )
    if output.dtype != torch.float32:
        raise ConfigError(f"{path} returns {output.dtype}, expected torch.float32; use .float()")
    return output


def distance_note(name: str, backbone: nn.Module | None) -> str:
    """A warning for a backbone that may map unusual inputs onto usual ones; empty if it declares that it does not. None
    stands for a frozen ranker, which can't declare it."""
    if getattr(backbone, "preserves_distances", False):
        return ""
    change = (
        ""
        if backbone is None
        else ". To change this, return torch.cat([hidden, inputs], -1) or use spectral normalisation with residual "
        "blocks, and set preserves_distances = True on the class"
    )
    return (
        f"warning: {name} is not known to preserve distances: it may map rows unlike any training row onto features of "
        "usual ones. Then logit_variance and the last layer's part of the epistemic variance do not grow for such "
        "rows, so do not use them to detect out-of-distribution rows. What unknown ids add to the epistemic variance "
        f"is not affected{change}"
    )


def _described(value: object) -> str:
    if value is None:
        return "missing"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
