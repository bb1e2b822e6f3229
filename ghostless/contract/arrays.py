"""Types of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]  # by name; the first dimension is the rows
