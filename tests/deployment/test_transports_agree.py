"""Test that one small study gives identical results over each transport and in one process.

`test_killed.py` does this over HTTPS with processes that are killed, in every test run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.storage.files import load_tree
from fallow.transport.kinds import HTTPS
from tests.deployment.real import (
    LEADER,
    Carry,
    Real,
    asked,
    assert_as_undisturbed,
    real,
    records,
)

pytest.importorskip("httpx")
pytestmark = pytest.mark.processes

LONG = 600.0  # seconds; a busy machine takes minutes


def left_by(study: Real) -> dict[str, Any]:
    """Return the records, labeling tasks, labels and tensors of a study."""
    run_folder = study.coordinator_folder.path / study.alike.program().cell.folder(Path())
    files = {
        str(file.relative_to(run_folder)): file
        for file in run_folder.rglob("*.safetensors")
    }
    files |= {name: study.folder / name / "model.safetensors" for name in study.sites}
    tensors = {name: flatten(load_tree(file, file.parent)) for name, file in files.items()}
    return {
        "records": records(run_folder, study.coordinator_folder.agreement.code),
        "asked": asked(study.sites),
        "labels": study.labels(),
        "tensors": {name: tensors[name] for name in sorted(tensors)},
    }


def flatten(tree: Any) -> Any:
    """Replace each tensor by its bytes, so that equal trees are equal in every bit."""
    if isinstance(tree, dict):
        return {name: flatten(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [flatten(value) for value in tree]
    if isinstance(tree, torch.Tensor):
        return (str(tree.dtype), tuple(tree.shape), tree.numpy().tobytes())
    return tree


def tensors_alike(study: Real) -> dict[str, Any]:
    """Return the same tensors of the study in one process."""
    path = study.alike.coordinator_folder / study.alike.program().cell.folder(Path())
    files = {str(file.relative_to(path)): file for file in path.rglob("*.safetensors")}
    sites = study.alike.sites
    files |= {name: study.alike.folder / name / "model.safetensors" for name in sites}
    return {name: flatten(load_tree(files[name], files[name].parent)) for name in files}


def run(folder: Path, transport: str, carry: Carry | None = None) -> dict[str, Any]:
    """Run a study over a transport and check that it ends like the one in one process."""
    with real(folder, transport=transport, carry=carry) as study:
        study.start(LEADER, *study.sites)
        study.finish(LONG)
        assert_as_undisturbed(study)
        left = left_by(study)
        assert left["tensors"] == tensors_alike(study)
        return left


@pytest.mark.soak
def test_over_https_and_in_one_process_a_study_leaves_the_same_bits(tmp_path: Path) -> None:
    assert run(tmp_path, HTTPS)["tensors"]
