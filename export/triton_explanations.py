"""One line above every option of a generated config.pbtxt that says what the option does and why it is set."""

import re

from ghostless.contract.metadata import PREFIX

_OPENS = re.compile(r"^\s*(\w+) \{$")
_SETS = re.compile(r"^\s*(\w+): ")
_KEY = re.compile(r'^\s*key: "(.*)"$')
_METADATA_KEY = re.compile(rf"^\d+/{re.escape(PREFIX)}")

# Explanations by path; an entry of a map has its key in brackets. Triton's own documentation is at
# https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html
EXPLANATIONS = {
    "name": "The model's name; Triton wants it to be the directory's.",
    "backend": "What runs the model: onnxruntime takes model.onnx itself, python runs model.py beside it.",
    "max_batch_size": "Most rows in one run. A request with more is refused; Ghostless's facade splits it.",
    "version_policy": "Which versions are loaded: all that are there; each request names the one it means.",
    "version_policy.all": "No bound; an explicit load with another policy can narrow it.",
    "input": "The raw features; the rows are the batch dimension, which Triton adds before the dims.",
    "input.name": "The feature's name.",
    "input.data_type": "Ids are TYPE_INT64 or TYPE_STRING, numbers TYPE_FP32.",
    "input.dims": "One value a row: clients send [n, 1] ...",
    "input.reshape": "... and the graph, which takes [n], sees it reshaped to that.",
    "output": "The distribution's fields.",
    "output.name": "As in the graph.",
    "output.data_type": "All are 32-bit floats.",
    "output.dims": "Values a row.",
    "output.reshape": "The graph gives [n], clients get [n, 1].",
    "instance_group": "Copies of the model that run at the same time.",
    "instance_group.count": "How many: per GPU, or on CPU one per core, each with one thread.",
    "instance_group.kind": "Where they run.",
    "dynamic_batching": "Requests that wait are merged into one run.",
    "dynamic_batching.preferred_batch_size": "A batch of so many rows starts at once; the largest is also 'enough'.",
    "dynamic_batching.max_queue_delay_microseconds": "How long a free instance waits for more rows to merge.",
    "dynamic_batching.default_queue_policy": "A request that waited too long is refused, not run late.",
    "dynamic_batching.default_queue_policy.default_timeout_microseconds": "The longest wait of a request ...",
    "dynamic_batching.default_queue_policy.allow_timeout_override": "... which its own deadline may shorten.",
    "dynamic_batching.default_queue_policy.max_queue_size": "Requests that may wait; one more is refused at once.",
    "model_warmup": "Run before the version is ready, so that no client pays for first allocations or kernels.",
    "model_warmup.name": "Shown in Triton's log.",
    "model_warmup.batch_size": "Rows of the sample.",
    "model_warmup.inputs": "One blank value for each feature.",
    "model_warmup.inputs.key": "The feature's name.",
    "model_warmup.inputs.value": "Its content.",
    "model_warmup.inputs.value.data_type": "As the feature's.",
    "model_warmup.inputs.value.dims": "As the feature's.",
    "model_warmup.inputs.value.zero_data": "Zeros: a known or unknown id costs the same.",
    "response_cache": "Off: features hardly repeat, and a cache would hide a new version's answers.",
    "parameters[intra_op_thread_count]": "CPU threads of a session; the graph runs on the GPU, so one is enough.",
    "parameters[metadata]": "What each version says of itself (VERSION/ghostless.*), for facades to read.",
    "optimization": "Execution providers.",
    "optimization.execution_accelerators": "What runs the graph instead of plain CUDA kernels.",
    "optimization.execution_accelerators.gpu_execution_accelerator": "On GPUs.",
    "optimization.execution_accelerators.gpu_execution_accelerator.name": "TensorRT compiles the graph for this GPU.",
}
_PROVIDER = "optimization.execution_accelerators.gpu_execution_accelerator.parameters"
EXPLANATIONS |= {
    f"{_PROVIDER}[precision_mode]": "FP32 keeps the verified answers; FP16 is faster and must be verified again.",
    f"{_PROVIDER}[trt_profile_min_shapes]": "Fewest rows that the compiled engine takes.",
    f"{_PROVIDER}[trt_profile_opt_shapes]": "Rows that it is tuned for.",
    f"{_PROVIDER}[trt_profile_max_shapes]": "Most rows; a larger batch would compile another engine in mid-service.",
    f"{_PROVIDER}[trt_engine_cache_enable]": "Compiled engines are kept, so that a restart takes seconds, not minutes.",
    f"{_PROVIDER}[trt_engine_cache_path]": "Where; a volume that outlives the container.",
    f"{_PROVIDER}[trt_cuda_graph_enable]": "Launches are recorded once and replayed; pays where batches are equal.",
}
# Map entries are explained as a whole, by their key.
_MAPS = ("parameters", _PROVIDER)


def explained(text: str) -> str:
    """`text` as google.protobuf.text_format prints it, each option explained where it first occurs."""
    lines = text.splitlines()
    done: set[str] = set()
    path: list[str] = []
    result: list[str] = []
    for number, line in enumerate(lines):
        opens, sets = _OPENS.match(line), _SETS.match(line)
        if line.strip() == "}":
            path.pop()
        elif opens or sets:
            name = (opens or sets)[1]  # type: ignore[index]  # one of them matched
            inside = ".".join(path)
            option = ".".join([*path, name])
            if option in _MAPS:
                option = f"{option}[{_entry(lines[number + 1])}]"
            if inside not in _MAPS and not inside.startswith("parameters.") and option not in done:
                done.add(option)
                indent = line[: len(line) - len(line.lstrip())]
                result.append(f"{indent}# {EXPLANATIONS[option]}")
            if opens:
                path.append(name)
        result.append(line)
    return "\n".join(result) + "\n"


def _entry(line: str) -> str:
    match = _KEY.match(line)
    assert match, f"a map's entry starts with its key, not {line!r}"
    return "metadata" if _METADATA_KEY.match(match[1]) else match[1]
