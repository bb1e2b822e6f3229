"""The same model.onnx on Triton's Python backend, for a Triton without the ONNX Runtime backend.

Triton starts one process per instance and calls `execute` with the requests of one dynamic batch. This file is copied
beside the model, so it imports nothing of Ghostless.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

Array = npt.NDArray[Any]
Tensors = dict[str, Array]  # by name; the first axis is the rows


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        file = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        options = ort.SessionOptions()
        # Parallelism comes from the instances; further threads of a session would compete for the same cores.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._inputs = [node.name for node in self._session.get_inputs()]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in their order."""
        # Nobody waits for the answer to a cancelled request, so its rows are not run.
        gone = [request.is_cancelled() for request in requests]
        live = [request for request, left in zip(requests, gone, strict=True) if not left]
        answers = iter(self._answers(live) if live else ())
        return [_cancelled() if left else next(answers) for left in gone]

    def _answers(self, requests: Sequence[Any]) -> list[Any]:
        inputs = [self._read(request) for request in requests]
        wanted = [request.requested_output_names() for request in requests]
        try:
            results = self._run_merged(inputs, wanted)
        except Exception as error:
            if len(requests) == 1:
                return [_failed(error)]
            # The rows of one request must not fail the requests that were merged with it.
            return [self._answers([request])[0] for request in requests]
        return [_answer(result) for result in results]

    def _read(self, request: Any) -> Tensors:
        return {name: _values(pb_utils.get_input_tensor_by_name(request, name)) for name in self._inputs}

    def _run_merged(self, inputs: Sequence[Tensors], wanted: Sequence[Sequence[str]]) -> list[Tensors]:
        """Runs the rows of all requests at once, for the outputs that any of them wants. Returns for each request views
        of its own rows."""
        names = list(dict.fromkeys(name for some in wanted for name in some))
        if len(inputs) == 1:
            merged = inputs[0]
        else:
            merged = {name: np.concatenate([tensors[name] for tensors in inputs]) for name in self._inputs}
        outputs = dict(zip(names, self._session.run(names, merged), strict=True))
        results: list[Tensors] = []
        start = 0
        for tensors, some in zip(inputs, wanted, strict=True):
            end = start + len(tensors[self._inputs[0]])
            results.append({name: outputs[name][start:end] for name in some})
            start = end
        return results


def _values(tensor: Any) -> Array:
    values: Array = tensor.as_numpy()  # a view of the memory that Triton shares with this process
    if values.dtype != np.object_:
        return values
    # Triton passes strings as bytes, which ONNX Runtime would convert to the text "b'...'".
    return np.array([text.decode(errors="replace") for text in values], dtype=np.object_)


def _answer(outputs: Tensors) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, values) for name, values in outputs.items()])


def _failed(error: Exception) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"running the model failed: {error}"))


def _cancelled() -> Any:
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError("the request was cancelled", pb_utils.TritonError.CANCELLED)
    )
