"""The last step of a Triton ensemble: merges the members' outputs into their mixture, on Triton's Python backend.

Its inputs are the members' outputs, named like "3:cdf". It uses the facade's code; the config contains its path.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        sys.path.insert(0, parameters["source"])
        from loadtest.compare.mixture import merge_members

        self._merge = merge_members
        self._knots = np.asarray(json.loads(parameters["knots"]), np.float32)
        self._levels = np.asarray(json.loads(parameters["levels"]), np.float32)
        self._matrices = set(json.loads(parameters["matrices"]))
        self._outputs = [output["name"] for output in config["output"]]
        self._inputs = [tuple(tensor["name"].split(":")) for tensor in config["input"]]
        self._members = 1 + max(int(member) for member, _ in self._inputs)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in their order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        members: list[dict[str, Any]] = [{} for _ in range(self._members)]
        for member, name in self._inputs:
            values = pb_utils.get_input_tensor_by_name(request, f"{member}:{name}").as_numpy()
            members[int(member)][name] = values if name in self._matrices else values.reshape(-1)
        wanted = [name for name in self._outputs if name in request.requested_output_names()]
        merged = self._merge(members, wanted, self._knots, self._levels)
        tensors = [pb_utils.Tensor(name, values.reshape(len(values), -1)) for name, values in merged.items()]
        return pb_utils.InferenceResponse(tensors)
