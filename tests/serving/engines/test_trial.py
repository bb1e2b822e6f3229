"""Files that would take a server down are found out in a child process."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ghostless.contract import metadata, repository
from ghostless.contract.errors import InvalidModelError
from serving.engines.embedded import load_model
from serving.engines.trial import TrialBounds, Trials, memory_bound_bytes
from tests.support.onnx_models import build, write_version
from tests.support.processes import served
from tests.support.scrape import metrics_url, total
from tests.support.waiting import eventually

MB = 1024 * 1024


def trials(directory: Path, memory_mb: float = 500, seconds: float = 60.0) -> Trials:
    return Trials(directory, TrialBounds(int(memory_mb * MB), seconds), (1, 64), "cpu")


def save(root: Path, model: onnx.ModelProto, version: int = 1) -> Path:
    directory = root / "demo" / str(version)
    directory.mkdir(parents=True)
    (directory / "model.onnx").write_bytes(model.SerializeToString())
    return directory / "model.onnx"


def with_term(nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    """A whole model whose mean has a further term, the value `term` of these nodes."""
    model = build()
    (producer,) = (node for node in model.graph.node if metadata.MEAN in node.output)
    producer.output[0] = "own_mean"
    model.graph.node.extend([*nodes, helper.make_node("Add", ["own_mean", "term"], [metadata.MEAN])])
    model.graph.initializer.extend(constants)
    return model


def memory_bomb(values: int) -> onnx.ModelProto:
    """A few bytes that become `values` floats when it runs."""
    return with_term(
        [
            helper.make_node("ConstantOfShape", ["size"], ["large"]),
            helper.make_node("ReduceSum", ["large"], ["term"], keepdims=0),
        ],
        [numpy_helper.from_array(np.array([values], np.int64), "size")],
    )


def endless_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["still"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, []),
        ],
    )
    return with_term(
        [helper.make_node("Loop", ["turns", "begin", "zero"], ["term"], body=body)],
        [
            numpy_helper.from_array(np.array(1 << 60, np.int64), "turns"),
            numpy_helper.from_array(np.array(True), "begin"),
            numpy_helper.from_array(np.array(0, np.float32), "zero"),
            numpy_helper.from_array(np.array(0, np.float32), "one"),
        ],
    )


def test_a_good_version_is_tried_once_for_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_version(tmp_path / "models", 1) / "model.onnx"
    trials(tmp_path).check(file, "demo", 1)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    trials(tmp_path).check(file, "demo", 1)
    os.utime(file)
    with pytest.raises(FileNotFoundError):
        trials(tmp_path).check(file, "demo", 1)


def test_a_file_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    file = save(tmp_path, memory_bomb(250_000_000))
    with pytest.raises(InvalidModelError, match=r"(?s)Failed to allocate memory.*allow it more memory with --max"):
        trials(tmp_path).check(file, "demo", 1)
    harmless = save(tmp_path, memory_bomb(1000), version=2)
    trials(tmp_path).check(harmless, "demo", 2)


def test_a_file_whose_run_never_ends_is_refused(tmp_path: Path) -> None:
    file = save(tmp_path, endless_loop())
    began = time.monotonic()
    with pytest.raises(InvalidModelError, match=r"did not load and warm up within 2 s"):
        trials(tmp_path, seconds=2.0).check(file, "demo", 1)
    assert time.monotonic() - began < 20


def test_files_larger_than_the_bound_are_not_even_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_version(tmp_path / "models", 1) / "model.onnx"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with (file.parent / "model.onnx.data").open("wb") as data:
        data.truncate(2 << 30)  # a hole
    with pytest.raises(InvalidModelError, match=r"files have 214\d MB, and it may take 524 MB .*--max-model-mb"):
        trials(tmp_path).check(file, "demo", 1)


def test_a_child_that_is_killed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_version(tmp_path / "models", 1) / "model.onnx"
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(InvalidModelError, match="ended the trial process with SIGKILL; it may take more memory"):
        trials(tmp_path).check(file, "demo", 1)


def test_other_reasons_are_those_of_loading_it(tmp_path: Path) -> None:
    (tmp_path / "demo" / "1").mkdir(parents=True)
    file = tmp_path / "demo" / "1" / "model.onnx"
    file.write_bytes(b"damaged")
    with pytest.raises(InvalidModelError, match=rf"^{file}: ONNX Runtime can't load it: "):
        trials(tmp_path).check(file, "demo", 1)


@pytest.mark.parametrize("location", ["../../secret", "{}/secret", "link"])
def test_external_data_outside_the_versions_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(np.zeros(4, np.float32).tobytes())
    tensor = TensorProto(name="outside", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location.format(tmp_path)), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    file = save(tmp_path, with_term([helper.make_node("ReduceSum", ["outside"], ["term"], keepdims=0)], [tensor]))
    (file.parent / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidModelError, match=r"can't load it: .*External data path"):
        load_model(file, "demo", 1, (1,))


def test_operators_of_other_libraries_are_refused(tmp_path: Path) -> None:
    model = with_term([helper.make_node("Evil", ["own_mean"], ["term"], domain="com.evil")], [])
    model.opset_import.append(helper.make_opsetid("com.evil", 1))
    with pytest.raises(InvalidModelError, match=r"com\.evil:Evil.*is not a registered function/op"):
        load_model(save(tmp_path, model), "demo", 1, (1,))


def test_the_bound_is_half_of_the_memory_unless_it_is_set() -> None:
    assert memory_bound_bytes(3.0) == 3 * MB
    assert 0 < memory_bound_bytes(0) <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def test_a_server_outlives_a_version_that_would_take_all_memory(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    repository.promote(tmp_path, "demo", 1)
    save(tmp_path, memory_bomb(2_000_000_000), version=2)
    with served(tmp_path, "--workers", "2", "--poll-s", "0.1", "--max-model-mb", "400") as server:
        url = metrics_url(server)
        repository.promote(tmp_path, "demo", 2)
        eventually(lambda: total(url, "model_wanted_version") == 2, "the roll-out")
        eventually(lambda: total(url, "model_version_failed", version="2") == 1, "its failure")
        assert total(url, "model_served_version") == 1
        assert (total(url, "ready"), total(url, "worker_restarts_total")) == (2, 0)
        assert total(url, "process_resident_bytes") < 2 * 400 * MB
        assert server.output.count("version 2 is not served") == 2
