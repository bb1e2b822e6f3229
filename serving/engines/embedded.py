"""The embedded engine: ONNX Runtime in this process, behind the registry and the batcher."""

from collections.abc import Sequence
from pathlib import Path

import onnxruntime as ort

from ghostless.contract.arrays import Tensors
from serving.engines.batcher import BatchLimits, RowBatcher
from serving.engines.interface import EngineStatistics, Job, LoadTimes, ModelStatus, ModelVersion
from serving.engines.registry import ModelRegistry
from serving.engines.session import LoadedModel, choose_providers, load_model, warm_up_sizes
from serving.errors import OverloadedError


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
    ) -> None:
        # Fails here, once, rather than at every model.
        choose_providers(providers, ort.get_available_providers())
        sizes = warm_up_sizes(limits.max_batch_rows)
        self._registry = ModelRegistry(
            root,
            lambda file, name, version: load_model(file, name, version, sizes, providers),
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
        """Look at the repository now instead of at the next poll."""
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
        return EngineStatistics(self._batcher.queued_rows, loaded)


def _run(model: ModelVersion, inputs: Tensors, outputs: Sequence[str]) -> Tensors:
    # Jobs carry what `resolve` returned, which is this engine's own class.
    assert isinstance(model, LoadedModel)
    return model.run(inputs, outputs)
