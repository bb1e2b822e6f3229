from pathlib import Path

import pytest

from ghostless.contract import repository
from ghostless.contract.errors import InvalidModelError, RepositoryError
from serving.engines.interface import ModelVersion, VersionState
from serving.engines.registry import ModelRegistry
from serving.errors import NotFoundError
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of


def _publish(root: Path, content: str = "good", name: str = "demo", promote: bool = True) -> int:
    with repository.staging(root, name) as directory:
        (directory / "model.onnx").write_text(content)
        return repository.publish(root, name, directory, promote=promote)


class Loader:
    def __init__(self) -> None:
        self.loads: list[tuple[str, int]] = []

    def __call__(self, file: Path, name: str, version: int) -> ModelVersion:
        self.loads.append((name, version))
        if not file.exists() or file.read_text() != "good":
            raise InvalidModelError(f"{file}: damaged")
        return ModelVersion(name, version, metadata_of(SMALL), CR_OUTPUTS, {})


@pytest.fixture
def loader() -> Loader:
    return Loader()


def _registry(root: Path, loader: Loader, **options: object) -> ModelRegistry[ModelVersion]:
    registry = ModelRegistry(root, loader, **options)  # type: ignore[arg-type]  # of many types
    registry.refresh()
    return registry


def _states(registry: ModelRegistry[ModelVersion]) -> dict[int, VersionState]:
    return {v.version: v.state for v in registry.snapshot.statuses()[0].versions}


def test_the_version_in_service_answers_and_others_by_number(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    _publish(tmp_path)
    registry = _registry(tmp_path, loader)
    assert registry.snapshot.resolve("", 0).version == 2
    assert registry.snapshot.resolve("demo", 1).version == 1
    with pytest.raises(NotFoundError, match=r"no version 7 loaded; available: 1, 2"):
        registry.snapshot.resolve("demo", 7)
    with pytest.raises(NotFoundError, match=r"no model 'other'; available: demo"):
        registry.snapshot.resolve("other", 0)


def test_a_new_version_takes_over_and_old_requests_keep_theirs(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    registry = _registry(tmp_path, loader)
    in_flight = registry.snapshot.resolve("demo", 0)
    _publish(tmp_path)
    registry.refresh()
    assert registry.snapshot.resolve("demo", 0).version == 2
    assert in_flight.version == 1


def test_a_broken_version_never_replaces_a_good_one(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    registry = _registry(tmp_path, loader)
    _publish(tmp_path, "broken")
    for _ in range(3):
        registry.refresh()
    assert registry.snapshot.resolve("demo", 0).version == 1
    assert registry.snapshot.is_ready()
    assert _states(registry) == {1: VersionState.READY, 2: VersionState.FAILED}
    assert "damaged" in registry.snapshot.statuses()[0].versions[1].message
    assert (registry.snapshot.statuses()[0].wanted, registry.snapshot.resolve("demo", 0).version) == (2, 1)
    assert loader.loads.count(("demo", 2)) == 1, "a known failure is not tried again at every poll"


def test_a_repaired_version_is_tried_again(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    registry = _registry(tmp_path, loader)
    _publish(tmp_path, "broken")
    registry.refresh()
    (tmp_path / "demo" / "2" / "SHA256SUMS").unlink()
    registry.refresh()
    assert loader.loads.count(("demo", 2)) == 2, "any file of the version may be what was repaired"
    (tmp_path / "demo" / "2" / "model.onnx").write_text("good")
    registry.refresh()
    assert registry.snapshot.resolve("demo", 0).version == 2


def test_a_cold_start_on_a_broken_version_serves_the_one_before(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    _publish(tmp_path, "broken")
    assert _registry(tmp_path, loader).snapshot.resolve("demo", 0).version == 1


def test_promote_and_roll_back_are_followed(tmp_path: Path, loader: Loader) -> None:
    for _ in range(3):
        _publish(tmp_path)
    registry = _registry(tmp_path, loader)
    repository.promote(tmp_path, "demo", 1)
    registry.refresh()
    assert registry.snapshot.resolve("demo", 0).version == 1
    repository.rollback(tmp_path, "demo")
    registry.refresh()
    assert registry.snapshot.resolve("demo", 0).version == 3
    assert loader.loads.count(("demo", 3)) == 1, "the version rolled back to was still loaded"


def test_only_so_many_versions_stay_loaded(tmp_path: Path, loader: Loader) -> None:
    for _ in range(5):
        _publish(tmp_path)
    registry = _registry(tmp_path, loader, keep_versions=2)
    assert _states(registry) == {4: VersionState.READY, 5: VersionState.READY}


def test_a_version_removed_from_disk_serves_on_until_there_is_another(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    _publish(tmp_path)
    registry = _registry(tmp_path, loader, keep_versions=1)
    (tmp_path / "demo" / "2").rename(tmp_path / "gone")
    registry.refresh()
    assert registry.snapshot.resolve("demo", 0).version == 1
    (tmp_path / "demo").rename(tmp_path / ".demo")
    registry.refresh()
    assert not registry.snapshot.is_ready()
    with pytest.raises(NotFoundError, match="available: none"):
        registry.snapshot.resolve("demo", 0)


def test_with_several_models_one_must_be_named_or_made_the_default(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path, name="a")
    _publish(tmp_path, name="b")
    registry = _registry(tmp_path, loader)
    with pytest.raises(NotFoundError, match=r"names no model.*available: a, b"):
        registry.snapshot.resolve("", 0)
    assert registry.snapshot.resolve("b", 0).name == "b"
    assert _registry(tmp_path, loader, default_model="b").snapshot.resolve("", 0).name == "b"
    assert not _registry(tmp_path, loader, default_model="c").snapshot.is_ready()


def test_the_watcher_survives_a_damaged_repository(tmp_path: Path, loader: Loader) -> None:
    _publish(tmp_path)
    registry = ModelRegistry(tmp_path, loader, poll_s=0.01)
    registry.start()
    try:
        (tmp_path / "demo" / "in_service.json").write_text("nonsense")
        with pytest.raises(RepositoryError):
            registry.refresh()
        assert registry.snapshot.resolve("demo", 0).version == 1
        (tmp_path / "demo" / "in_service.json").unlink()
        _publish(tmp_path)
        for _ in range(500):
            if registry.snapshot.resolve("demo", 0).version == 2:
                break
            registry._stopped.wait(0.01)
        assert registry.snapshot.resolve("demo", 0).version == 2
    finally:
        registry.stop()
