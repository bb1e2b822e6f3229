"""The embedded engine: ONNX Runtime in this process, behind the registry and the batcher.

A model file is loaded, checked against its metadata, and warmed up before it serves.
"""

import logging
import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnxruntime as ort

from ghostless.contract import digests, metadata, model_file
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.errors import ConfigError, InvalidModelError
from serving.engines.batcher import BatchLimits, RowBatcher
from serving.engines.interface import EngineStatistics, Job, LoadTimes, ModelStatus, ModelVersion
from serving.engines.reduced_graph import reduce_graph
from serving.engines.registry import ModelRegistry
from serving.engines.trial import Trials
from serving.errors import OverloadedError

_log = logging.getLogger(__name__)

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"

# Outputs that get a session of their own, without what only others need: rankings by the mean, and by UCB or Thompson.
# The second has what the uncertainty metrics sample, too.
_REDUCED = (
    frozenset({metadata.MEAN}),
    frozenset(
        {
            metadata.MEAN,
            metadata.ALEATORIC,
            metadata.EPISTEMIC,
            metadata.EPISTEMIC_CANDIDATE,
            metadata.EPISTEMIC_LAST_LAYER,
            metadata.LOGIT_VARIANCE,
            metadata.UNKNOWN_IDS,
        }
    ),
)
# Weights that such a session may hold a second time.
_MAX_REDUCED_BYTES = 64 << 20
_COMPARED_ROWS = 64
_MAX_CHOICES = 1024


@dataclass(frozen=True, eq=False)
class LoadedModel(ModelVersion):
    """A version with its session. Runs may overlap, because ONNX Runtime's sessions are thread-safe."""

    session: ort.InferenceSession
    # Sessions of reduced graphs with the outputs that they have, the cheapest first.
    reduced: tuple[tuple[frozenset[str], ort.InferenceSession], ...] = ()
    # Seconds to read and check the file, and to warm up.
    load_s: float = 0.0
    warm_up_s: float = 0.0
    _choices: dict[tuple[str, ...], ort.InferenceSession] = field(init=False, default_factory=dict)

    def run(self, inputs: Tensors, outputs: Sequence[str]) -> dict[str, Array]:
        wanted = tuple(outputs)
        session = self._choices.get(wanted) or self._choose(wanted)
        return dict(zip(wanted, session.run(wanted, inputs), strict=True))

    def _choose(self, outputs: tuple[str, ...]) -> ort.InferenceSession:
        fitting = (session for offered, session in self.reduced if offered.issuperset(outputs))
        chosen = next(fitting, self.session)
        if len(self._choices) < _MAX_CHOICES:
            self._choices[outputs] = chosen
        return chosen


class EmbeddedEngine:
    def __init__(
        self,
        root: Path,
        limits: BatchLimits,
        *,
        poll_s: float = 1.0,
        keep_versions: int = 2,
        default_model: str = "",
        providers: str = "cpu",
        trials: Trials | None = None,
    ) -> None:
        """`trials`: where each version is loaded before it is loaded here."""
        # Fail here, once, rather than for every model.
        choose_providers(providers, available_providers())
        sizes = warm_up_sizes(limits.max_batch_rows)

        def load(file: Path, name: str, version: int) -> LoadedModel:
            if trials is not None:
                trials.check(file, name, version)
            return load_model(file, name, version, sizes, providers)

        self._registry = ModelRegistry(
            root,
            load,
            poll_s=poll_s,
            keep_versions=keep_versions,
            default_model=default_model,
        )
        self._batcher = RowBatcher(_run, limits)

    def start(self) -> None:
        self._registry.start()

    def stop(self) -> None:
        self._registry.stop()

    def refresh(self) -> None:
        """Check the repository now instead of at the next poll."""
        self._registry.refresh()

    def resolve(self, model: str, version: int) -> ModelVersion:
        return self._registry.snapshot.resolve(model, version)

    def submit(self, job: Job) -> None:
        self._batcher.submit(job)

    def check_overload(self) -> OverloadedError | None:
        return self._batcher.check_overload()

    def run_queued(self) -> float | None:
        return self._batcher.run_queued()

    def cancel(self, job: Job) -> None:
        self._batcher.cancel(job)

    def models(self) -> Sequence[ModelStatus]:
        return self._registry.snapshot.statuses()

    def default_model(self) -> str:
        return self._registry.snapshot.default_model()

    def is_ready(self) -> bool:
        return self._registry.snapshot.is_ready()

    def statistics(self) -> EngineStatistics:
        loaded = [
            LoadTimes(version, version.load_s, version.warm_up_s)
            for served in self._registry.snapshot.models.values()
            for version in served.ready.values()
        ]
        return EngineStatistics(self._batcher.queued_rows, loaded, has_run=self._batcher.has_run)


def _run(model: ModelVersion, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
    # A job's model comes from `resolve`, which returns this engine's own class.
    assert isinstance(model, LoadedModel)
    return model.run(inputs, outputs)


def load_model(file: Path, name: str, version: int, warm_up_rows: Sequence[int], providers: str = "cpu") -> LoadedModel:
    """Load a model so that it is ready to serve: all checks passed and every batch size of `warm_up_rows` run once.

    `providers` as in `choose_providers`.
    """
    chosen = choose_providers(providers, available_providers())
    began = time.monotonic()
    if not digests.verify(file.parent):
        _log.info("%s has no %s (an older export), so its content is not checked", file, digests.DIGESTS_FILE)
    try:
        session = ort.InferenceSession(str(file), session_options(), providers=chosen)
    except Exception as error:  # ONNX Runtime has a separate exception class for each status code
        raise InvalidModelError(f"{file}: ONNX Runtime can't load it: {error}") from error
    check_provider(providers, chosen[0], session.get_providers()[0], str(file))
    described = model_file.read_metadata(session, str(file))
    properties = session.get_modelmeta().custom_metadata_map
    model = LoadedModel(
        name=name,
        version=version,
        metadata=described,
        outputs=tuple(output.name for output in session.get_outputs()),
        properties={key: text for key, text in properties.items() if key.startswith(metadata.PREFIX)},
        session=session,
    )
    loaded = time.monotonic()
    for rows in warm_up_rows:
        model_file.trial_run(session, described, rows, str(file))
    if chosen[0] == CPU:
        model = replace(model, reduced=_reduced_sessions(file, model))
    for _, reduced in model.reduced:
        for rows in warm_up_rows:
            model_file.trial_run(reduced, described, rows, str(file))
    return replace(model, load_s=loaded - began, warm_up_s=time.monotonic() - loaded)


def available_providers() -> Sequence[str]:
    available: Sequence[str] = ort.get_available_providers()
    return available


def _reduced_sessions(file: Path, model: LoadedModel) -> tuple[tuple[frozenset[str], ort.InferenceSession], ...]:
    """Those that can be made and answer as the whole graph does, bit for bit."""
    found = []
    rows = model_file.random_rows(model.metadata, _COMPARED_ROWS)
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for outputs in dict.fromkeys(offered.intersection(model.outputs) for offered in _REDUCED):
            if not outputs or len(outputs) == len(model.outputs):
                continue
            names = sorted(outputs)
            try:
                with memoryview(content) as view:
                    graph = reduce_graph(view, outputs, _MAX_REDUCED_BYTES)
                if graph is None:
                    continue
                session = ort.InferenceSession(graph, session_options(), providers=[CPU])
                answers = zip(model.session.run(names, rows), session.run(names, rows), strict=True)
                if all(np.array_equal(whole, reduced) for whole, reduced in answers):
                    found.append((outputs, session))
                    continue
                _log.warning("%s: a graph reduced to %s gives other answers, so it is not used", file, names)
            except Exception:  # the whole graph serves in any case
                _log.warning("%s: could not reduce the graph to %s", file, names, exc_info=True)
    return tuple(found)


def choose_providers(wanted: str, available: Sequence[str]) -> list[str]:
    """ONNX Runtime's execution providers for `wanted`: auto, cpu, cuda or tensorrt; the first is preferred.

    auto prefers CUDA to TensorRT, because TensorRT compiles an engine for each new shape first.
    """
    gpu = {"cpu": (), "cuda": (CUDA,), "tensorrt": (TENSORRT,), "auto": (CUDA, TENSORRT)}[wanted]
    first = next((provider for provider in gpu if provider in available), CPU)
    if wanted in ("cuda", "tensorrt") and first == CPU:
        raise ConfigError(
            f"--providers {wanted}: the installed ONNX Runtime has {', '.join(available)}; install "
            "'ghostless-server[serve-gpu]' in an environment without onnxruntime, or use --providers cpu"
        )
    # Nodes that TensorRT can't run are run on CUDA rather than on the CPU.
    second = [CUDA] if first == TENSORRT and CUDA in available else []
    return [first, *second, *([CPU] if first != CPU else [])]


def check_provider(wanted: str, chosen: str, taken: str, file: str) -> None:
    """Log the provider that ONNX Runtime uses: without the GPU's libraries, it silently falls back to the CPU."""
    if taken == chosen:
        _log.info("%s runs on %s (--providers %s)", file, taken, wanted)
    elif wanted == "auto":
        _log.warning("%s runs on %s: ONNX Runtime could not start %s", file, taken, chosen)
    else:
        raise InvalidModelError(
            f"{file}: --providers {wanted}, but ONNX Runtime could not start {chosen} and uses {taken}; "
            "check that the GPU's driver and libraries are installed"
        )


def warm_up_sizes(max_batch_rows: int) -> tuple[int, ...]:
    """Batch sizes to warm up: 1, 4, 16, ... and the largest batch."""
    sizes = [1]
    while sizes[-1] * 4 < max_batch_rows:
        sizes.append(sizes[-1] * 4)
    return (*sizes, max_batch_rows) if max_batch_rows > 1 else (1,)


def session_options() -> ort.SessionOptions:
    """One thread per run, without spinning."""
    options = ort.SessionOptions()
    # Slots run in parallel; additional threads per session would compete with them for the same cores.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    # This optimizer replaces two Gathers of a row each by a Split and two Squeezes, which take longer.
    options.add_session_config_entry("optimization.disable_specified_optimizers", "GatherSliceToSplitFusion")
    options.log_severity_level = 3
    return options
