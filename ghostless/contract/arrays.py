"""The types that numbers travel in."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]  # by name, the rows leading
