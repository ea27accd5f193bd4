"""Test Hugging Face datasets, label upload, and export and import of model repositories."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load, save

import fallow as fl
from fallow import load_model
from fallow.data.loaders.open import from_folder
from fallow_trackers import (
    from_datasets,
    labels_to_datasets,
    push_to_hub,
)
from tests.data.test_own_images import POSTSCRIPT, plant_ghostscript
from tests.integrations.conftest import QUICK, simulation

__all__ = ["simulation"]  # fixtures

# -- model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> fl.Run:
    """Run a study on a table with texts and empty cells."""
    frame = patients()
    data = fl.from_frame(frame, label="sick", site="ward", name="wards")
    return fl.run(data, "random", model="mlp:hidden=[4]", **QUICK)


def patients() -> pd.DataFrame:
    rows = range(90)
    return pd.DataFrame(
        {
            "age": [None if i == 7 else 20.5 + 1.7 * (i * 13 % 40) for i in rows],
            "kind": ["mild" if i % 3 else "grave" for i in rows],
            "ward": ["a" if i % 2 else "b" for i in rows],
            "sick": ["yes" if i * 7 % 5 > 2 else "no" for i in rows],
        }
    )


@pytest.fixture(scope="module")
def repository(run: fl.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.save(tmp_path_factory.mktemp("hub") / "wards", license="mit")


def test_a_model_comes_back_from_its_repository_as_it_was(
    run: fl.Run, repository: Path
) -> None:
    again = load_model(repository)
    rows = patients()
    assert again.classes == run.classes
    assert again.predict(rows).tolist() == run.predict(rows).tolist()
    assert np.array_equal(again.predict_proba(rows), run.predict_proba(rows))
    assert isinstance(run.model, torch.nn.Module)
    weights = load((repository / "model.safetensors").read_bytes())
    for name, value in run.model.state_dict().items():
        assert torch.equal(weights[name], value)


def test_a_repository_has_a_card_with_a_header_and_no_path_of_this_machine(
    repository: Path,
) -> None:
    assert {file.name for file in repository.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    yaml = pytest.importorskip("yaml")
    _, header, body = (repository / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(header) == {
        "library_name": "fallow",
        "license": "mit",
        "pipeline_tag": "tabular-classification",
        "tags": ["federated-learning", "active-learning"],
    }
    assert "# wards" in body
    assert "accuracy: 0." in body
    assert " exchanges, " in body
    for file in repository.iterdir():
        assert str(repository.parent).encode() not in file.read_bytes()


def test_a_model_of_numbers_and_of_a_fitted_encoder_comes_back(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=draw)
    rows = fl.from_arrays(x, (100 + 20 * x.sum(1)).numpy(), name="prices")
    simulation = fl.Federation(rows, sites=3)
    run = fl.run(simulation, "random", encoder="fourier:features=16:gamma=0.25", **QUICK)
    again = load_model(run.save(tmp_path / "prices"))
    assert np.array_equal(again.predict(x[:9]), run.predict(x[:9]))


def test_a_model_of_each_site_needs_to_be_told_whose(
    simulation: fl.Federation, tmp_path: Path
) -> None:
    run = fl.run(simulation, "random", **{**QUICK, "training": "local"})
    with pytest.raises(
        ValueError, match="each site has a personalized model; choose one with site="
    ):
        run.save(tmp_path / "all")
    site = run.sites[0]
    again = load_model(run.save(tmp_path / "one", site=site))
    x = simulation.dataset.x_test
    assert again.predict(x).tolist() == run.predict(x, site).tolist()


def changed(repository: Path, folder: Path, **changes: Any) -> Path:
    """Copy the repository and change values in its config."""
    folder.mkdir()
    config = json.loads((repository / "config.json").read_text())
    config["config"] |= changes.pop("config", {})
    config["rows"] |= changes.pop("rows", {})
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "model.safetensors").write_bytes(
        (repository / "model.safetensors").read_bytes()
    )
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "fallow-model-9"}, "not describe a model of this version"),
        ({"config": {"model": {"name": "os:system", "fields": {}}}}, "cannot be built"),
        ({"config": {"model": {"name": "no-such", "fields": {}}}}, "cannot be built"),
        (
            {"config": {"encoder": {"name": "onnx", "fields": {"weights": "/etc/passwd"}}}},
            "needs files that a repository does not contain",
        ),
        ({"rows": {"shape": [10**9, 10**9]}}, "an example has the shape"),
        ({"rows": {"shape": "many"}}, "cannot be built"),
        ({"rows": {"classes": ["no", "yes", "x"]}}, "has the shape"),
        ({"config": {"model": {"name": "linear", "fields": {}}}}, "different networks"),
        (
            {"config": {"model": {"name": "mlp", "fields": {"hidden": [10**12]}}}},
            "has the shape",
        ),
        (
            {"config": {"model": {"name": "mlp", "fields": {"hidden": [10**30]}}}},
            "cannot be built",
        ),
    ],
)
def test_a_repository_that_somebody_has_changed_is_refused_in_a_sentence(
    repository: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = changed(repository, tmp_path / "other", **changes)
    with pytest.raises(ValueError, match="other/") as error:
        load_model(folder)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_that_are_no_tensors_are_refused(repository: Path, tmp_path: Path) -> None:
    folder = changed(repository, tmp_path / "other")
    (folder / "model.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(ValueError, match="not in the format of safetensors"):
        load_model(folder)
    (folder / "model.safetensors").write_bytes(save({"w": torch.zeros(2)}, {}))
    with pytest.raises(ValueError, match="belong to different networks"):
        load_model(folder)
    with pytest.raises(ValueError, match=r"give a folder that Run\.save wrote"):
        load_model(tmp_path / "nowhere")


def change_tensors(repository: Path, folder: Path, **changes: torch.Tensor | None) -> Path:
    """Copy the repository and change its tensors."""
    there = changed(repository, folder)
    tensors = load((repository / "model.safetensors").read_bytes())
    for name, value in changes.items():
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value
    (there / "model.safetensors").write_bytes(save(tensors))
    return there


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fallow.scale.mean", torch.zeros(7)),  # of other columns
        ("fallow.scale.mean", torch.zeros(9, 1)),  # one example would have nine predictions
        ("fallow.scale.std", None),
        ("fallow.scale.eval", torch.zeros(1)),
        ("head.bias", torch.full((2,), torch.nan)),
        ("head.bias", torch.zeros(2, dtype=torch.complex64)),
        ("head.bias", torch.zeros(2, dtype=torch.int64)),
    ],
)
def test_numbers_beside_the_weights_are_looked_at_when_a_model_is_read(
    repository: Path, tmp_path: Path, name: str, value: torch.Tensor | None
) -> None:
    there = change_tensors(repository, tmp_path / "other", **{name: value})
    with pytest.raises(ValueError, match=r"other/model\.safetensors"):
        load_model(there)


def test_a_network_of_a_hundred_thousand_layers_is_not_built(
    repository: Path, tmp_path: Path
) -> None:
    layers = {"name": "mlp", "fields": {"hidden": [1] * 100_000}}
    there = changed(repository, tmp_path / "other", config={"model": layers})
    with pytest.raises(ValueError, match="its settings have more than 2000 characters"):
        load_model(there)


def test_a_license_that_would_break_the_header_is_refused(
    run: fl.Run, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="is not a license identifier of the hub"):
        run.save(tmp_path / "a", license="mit\ntags: [x]")
    assert not (tmp_path / "a").exists()


# -- hub -----------------------------------------------------------------------------------


@contextmanager
def hub() -> Iterator[tuple[str, dict[str, bytes], list[Any]]]:
    """Run a local hub that can create a repository with one commit. Yield its address, the
    files that it received, and the requests."""
    files: dict[str, bytes] = {}
    asked: list[Any] = []

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers.get("Authorization"), body))
            address = f"http://{self.headers['Host']}/ann/wards"
            answer: dict[str, Any] = {"url": address, "name": "ann/wards", "id": "1"}
            if "/preupload/" in self.path:
                sent = [file["path"] for file in json.loads(body)["files"]]
                answer = {
                    "files": [
                        {"path": path, "uploadMode": "regular", "shouldIgnore": False}
                        for path in sent
                    ]
                }
            elif "/commit/" in self.path:
                for line in body.splitlines():
                    item = json.loads(line)
                    if item["key"] == "file":
                        content = base64.b64decode(item["value"]["content"])
                        files[item["value"]["path"]] = content
                answer = {
                    "success": True,
                    "commitUrl": f"{address}/commit/{'0' * 40}",
                    "commitOid": "0" * 40,
                }
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", files, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_repository_is_sent_only_when_somebody_says_so_and_only_its_three_files(
    repository: Path, tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    folder = changed(repository, tmp_path / "wards")
    (folder / "README.md").write_text("# wards\n")
    (folder / "patients.csv").write_text("age\n1\n")
    code = (
        "import sys; from fallow_trackers import push_to_hub; "
        "print(push_to_hub(sys.argv[1], 'ann/wards'))"
    )
    with hub() as (address, files, asked):
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env={
                **os.environ,
                "HF_ENDPOINT": address,
                "HF_TOKEN": "hf_ours",
                "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_DISABLE_TELEMETRY": "1",
            },
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert files == {
        name: (folder / name).read_bytes()
        for name in ("README.md", "config.json", "model.safetensors")
    }
    assert {token for _, token, _ in asked} == {"Bearer hf_ours"}
    (created,) = [json.loads(body) for path, _, body in asked if path.endswith("create")]
    assert created.get("private") is True or created.get("visibility") == "private"


def test_a_folder_that_is_no_model_is_never_sent(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ValueError, match=r"give a folder that Run\.save wrote"):
        push_to_hub(tmp_path, "ann/wards")


# -- data ----------------------------------------------------------------------------------


def test_a_table_of_the_hub_has_its_names_of_classes_in_their_order() -> None:
    datasets = pytest.importorskip("datasets")
    labels = datasets.ClassLabel(names=["yes", "no", "unsure"])
    kinds = datasets.Features(
        {
            "age": datasets.Value("float32"),
            "kind": datasets.ClassLabel(names=["mild", "grave"]),
            "ward": datasets.Value("string"),
            "sick": labels,
        }
    )
    n = 60
    table = datasets.Dataset.from_dict(
        {
            "age": [20.5 + 1.7 * (i * 13 % 40) for i in range(n)],
            "kind": [i * 7 % 3 % 2 for i in range(n)],
            "ward": ["a" if i % 2 else "b" for i in range(n)],
            "sick": [-1 if i < 5 else i % 2 for i in range(n)],
        },
        features=kinds,
    )
    data = from_datasets(table, label="sick", site="ward")
    assert data.classes == ("yes", "no", "unsure")
    assert data.columns == ("age", "kind=grave", "kind=mild")
    assert data.site_names == ("a", "b")
    assert int((~data.is_labeled).sum()) == 5
    with pytest.raises(ValueError, match="no column 'sik'"):
        from_datasets(table, label="sik")
    splits = datasets.DatasetDict({"train": table})
    with pytest.raises(ValueError, match="dataset is a DatasetDict"):
        from_datasets(splits, label="sick")


def test_images_and_embeddings_of_the_hub_are_rows() -> None:
    datasets = pytest.importorskip("datasets")
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, size=(20, 6, 5, 3), dtype=np.uint8)
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    columns = {"image": list(pixels), "label": [i % 2 for i in range(20)]}
    images = datasets.Dataset.from_dict(columns, features=kinds)
    test = images.select(range(4))
    data = from_datasets(images.select(range(4, 20)), label="label", test=test)
    assert tuple(data.x.shape) == (16, 3, 6, 5)
    assert tuple(data.x_test.shape) == (4, 3, 6, 5)
    wanted = pixels[:4].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert np.array_equal(data.x_test.numpy(), wanted)
    assert data.classes == ("cat", "dog")

    numbers = {
        "z": draw.normal(size=(20, 4)).tolist(),
        "y": draw.normal(size=20).tolist(),
    }
    embeddings = from_datasets(datasets.Dataset.from_dict(numbers), label="y", rows="z")
    assert embeddings.task == "regression"
    assert tuple(embeddings.x.shape)[1:] == (4,)


@pytest.mark.parametrize("mode", ["P", "1", "RGBA", "LA"])
def test_images_of_every_format_have_the_pixels_of_a_folder_of_images(
    mode: str, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    folder = tmp_path / "images"
    stored = []
    for number in range(4):
        file = folder / "abc"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, size=(6, 5, 3), dtype=np.uint8)
        image.fromarray(pixels).convert(mode).save(file)
        stored.append({"bytes": file.read_bytes(), "path": None})
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.Value("string")}
    )
    columns = {"image": stored, "label": ["a", "b", "a", "b"]}
    images = datasets.Dataset.from_dict(columns, features=kinds)
    assert rows_of(from_datasets(images, label="label")) == rows_of(from_folder(folder))


def rows_of(data: fl.Dataset) -> tuple[torch.Size, list[list[float]]]:
    rows = torch.cat([data.x, data.x_test])
    return rows.shape, sorted(rows.flatten(1).tolist())


def test_labels_of_a_run_are_a_data_set_with_names(run: fl.Run) -> None:
    datasets = pytest.importorskip("datasets")
    result = labels_to_datasets(run)
    assert result.features["label"] == datasets.ClassLabel(names=list(run.classes))
    assert len(result) == len(run.labels) == run.records["labeled"].iloc[-1]
    assert result["row"][:] == run.labels["row"].tolist()
    assert result["label"][:] == [int(value) for value in run.labels["value"]]


def test_postscript_in_a_column_of_images_runs_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    trace = plant_ghostscript(tmp_path, monkeypatch)
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.Value("string")}
    )
    stored = [{"bytes": POSTSCRIPT, "path": "x.png"}]
    images = datasets.Dataset.from_dict({"image": stored, "label": ["cat"]}, features=kinds)
    with pytest.raises(ValueError, match=r"column 'image', row 1 could not be read as"):
        from_datasets(images, label="label")
    assert not trace.exists()
