"""Predictions of a finished model on new examples."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fallow.core.names import OWN
from fallow.data.loaders.features import read_features
from fallow.experiment.event_log import EventLog
from fallow.experiment.predict import outputs_of
from fallow.experiment.run import ExperimentRun
from fallow.experiment.scale import Scale
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from fallow.storage.files import load_tree
from fallow.study.preparation import open_study
from fallow.study.reading import read_study
from fallow.study.study import list_runs, run_one
from fallow.study.study_run import Setup, StudyRun
from fallow.study.trained import predict_file
from tests.data.kinds import spec_of
from tests.experiment.crash import tiny

ROWS = 80


def table(path: Path, label: bool = True) -> Path:
    """Return patients who are sick if old and of kind b; ages need scaling."""
    draw = np.random.default_rng(1)
    age = draw.integers(20, 90, ROWS)
    kind = draw.choice(["a", "b"], ROWS)
    sick = np.where((age > 50) & (kind == "b"), "yes", "no")
    lines = ["age,kind,ward"]
    lines += [f"{a},{k},7" for a, k in zip(age, kind, strict=True)]
    if label:
        last = ["sick", *sick]
        lines = [f"{line},{cell}" for line, cell in zip(lines, last, strict=True)]
    path.write_text("\n".join(lines))
    return path


def study(folder: Path, config: ExperimentConfig) -> Path:
    setup = Setup(config, folder / "study")
    open_study(setup, list_runs(config, ("random",), [0]), "", resume=False)
    run_one(setup, StudyRun("random", 0))
    return setup.out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    config = replace(
        tiny(folder),
        data=str(table(folder / "patients.csv")),
        label="sick",
        initial=1.0,
        cycles=0,
        rounds=20,
        partition=Spec("iid"),
    )
    return study(folder, config)


def test_rows_are_encoded_and_scaled_as_in_training(trained: Path, tmp_path: Path) -> None:
    path, rows, *_ = predict_file(trained, table(tmp_path / "new.csv", label=False))
    assert path == tmp_path / "new-predictions.csv"
    predict_rows = list(csv.DictReader(path.read_text().splitlines()))
    truth = list(csv.DictReader(table(tmp_path / "truth.csv").read_text().splitlines()))
    assert rows == len(predict_rows) == ROWS
    right = [s["prediction"] == t["sick"] for s, t in zip(predict_rows, truth, strict=True)]
    assert sum(right) > 0.85 * ROWS
    assert all(0.5 <= float(s["probability"]) <= 1 for s in predict_rows)


def test_one_row_alone_gets_the_prediction_it_gets_among_others(
    trained: Path, tmp_path: Path
) -> None:
    many = table(tmp_path / "many.csv", label=False)
    head, first, *_ = many.read_text().splitlines()
    (tmp_path / "one.csv").write_text(f"{head}\n{first}\n")
    alone = predict_file(trained, tmp_path / "one.csv").path
    among = predict_file(trained, many).path
    assert alone.read_text().splitlines()[1] == among.read_text().splitlines()[1]


def test_rows_with_names_keep_them(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "named.csv").write_text("id,age,kind,ward\np7,80,b,7\np3,20,a,7\n")
    path = predict_file(trained, tmp_path / "named.csv").path
    predict_rows = csv.DictReader(path.read_text().splitlines())
    assert [(line["id"], line["prediction"]) for line in predict_rows] == [
        ("p7", "yes"),
        ("p3", "no"),
    ]


def test_rows_of_an_npz_file_keep_their_ids(tmp_path: Path) -> None:
    done = study(tmp_path, replace(tiny(tmp_path), cycles=0, initial=1.0, rounds=10))
    np.savez(tmp_path / "new.npz", x=3 * np.eye(3, 6), ids=np.array(["a", "b", "c"]))
    predictions = list(
        csv.DictReader(
            predict_file(done, tmp_path / "new.npz").path.read_text().splitlines()
        )
    )
    assert [line["id"] for line in predictions] == ["a", "b", "c"]
    np.savez(tmp_path / "new.npz", x=3 * np.eye(3, 6), ids=np.array(["a", "b"]))
    with pytest.raises(ValueError, match="3 rows in x and 2 in ids"):
        predict_file(done, tmp_path / "new.npz")


def test_a_row_that_lacks_a_feature_has_a_line_without_a_prediction(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "gaps.csv").write_text("id,age,kind,ward\np1,,b,7\np7,80,b,7\np2,80,?,7\n")
    path, rows, lacking, *_ = predict_file(trained, tmp_path / "gaps.csv")
    predict_rows = csv.DictReader(path.read_text().splitlines())
    predictions = [(line["id"], line["prediction"]) for line in predict_rows]
    assert predictions == [("p1", ""), ("p7", "yes"), ("p2", "")]
    assert (rows, lacking) == (1, 2)


def test_predictions_are_written_as_parquet_too(trained: Path, tmp_path: Path) -> None:
    rows = tmp_path / "new.csv"
    rows.write_text("id,age,kind,ward\n=1+1,75,b,7\nNA,30,a,7\nlast,,a,7\n")
    as_csv = predict_file(trained, rows, out=tmp_path / "said.csv")
    as_parquet = predict_file(trained, rows, out=tmp_path / "said.parquet")
    assert as_csv[1:] == as_parquet[1:]
    assert as_csv[1:5] == (2, 1, None, None)
    predictions = list(csv.DictReader(as_csv.path.read_text().splitlines()))
    parquet = pd.read_parquet(as_parquet.path)
    assert parquet["id"].tolist() == ["=1+1", "NA", "last"]
    assert parquet["prediction"].tolist()[:2] == [
        row["prediction"] for row in predictions[:2]
    ]
    assert parquet["probability"].tolist()[:2] == [
        float(row["probability"]) for row in predictions[:2]
    ]
    for column in ("probability:no", "probability:yes"):
        assert parquet[column].tolist()[:2] == [
            float(row[column]) for row in predictions[:2]
        ]
    assert parquet.iloc[2, 1:].isna().all()


def test_rows_without_names_are_numbered_in_parquet_too(
    trained: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "new.csv"
    rows.write_text("age,kind,ward\n75,b,7\n30,a,7\n")
    written = predict_file(trained, rows, out=tmp_path / "new.parquet").path
    assert pd.read_parquet(written)["row"].tolist() == ["0", "1"]


def test_a_level_may_contain_an_equals_sign() -> None:
    frame = pd.DataFrame({"a=b": [1.5, 2.5, 9.5], "age": ["<65", ">=65", "x=y"]})
    columns = ["a=b", "age=<65", "age=>=65", "age=x=y"]
    assert read_features(frame, spec_of((4,), columns)).tolist() == [
        [1.5, 1, 0, 0],
        [2.5, 0, 1, 0],
        [9.5, 0, 0, 1],
    ]


def test_no_file_is_written_that_is_not_what_its_ending_says(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("age,kind,ward\n75,b,7\n")
    with pytest.raises(ValueError, match=r"not as \.xlsx; give --out said\.csv"):
        predict_file(trained, tmp_path / "new.csv", out=tmp_path / "said.xlsx")
    assert not (tmp_path / "said.xlsx").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,kin,ward\n3,a,7\n", "has no column 'kind(=a)?'; did you mean 'kin'"),
        ("age,kind,ward\nold,a,7\n", "'age', row 1: 'old' is a text, and the model"),
        ("age,kind,ward\n,a,7\n3,,7\n", "bad.csv has no row without missing features"),
        ("age,kind,ward\ninf,a,7\n", "infinite features"),
        ("age,kind,ward\n", "has no rows"),
        (
            "age,kind,ward\n3,a,7\n3,c,7\n",
            "'kind', row 2: 'c' is not one of the texts .*: 'a', 'b'",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    trained: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        predict_file(trained, tmp_path / "bad.csv")
    assert not (tmp_path / "bad-predictions.csv").exists()


def test_a_missing_file_run_or_study_is_named(trained: Path, tmp_path: Path) -> None:
    new = table(tmp_path / "new.csv", label=False)
    with pytest.raises(ValueError, match="there is no file"):
        predict_file(trained, tmp_path / "nowhere.csv")
    with pytest.raises(
        ValueError, match=r"no finished run of ahfal .* its strategies are random"
    ):
        predict_file(trained, new, strategy="ahfal")
    with pytest.raises(ValueError, match="no finished run of random with seed 5"):
        predict_file(trained, new, seed=5)
    with pytest.raises(ValueError, match="is not a study"):
        predict_file(tmp_path, new)


def test_a_model_with_one_changed_bit_is_not_used(trained: Path, tmp_path: Path) -> None:
    model = StudyRun("random", 0).folder(trained) / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    try:
        with pytest.raises(StorageError, match=r"model\.safetensors is damaged"):
            predict_file(trained, table(tmp_path / "new.csv", label=False))
    finally:
        model.write_bytes(whole)


@pytest.mark.parametrize(
    ("hidden", "why"),
    [([10**6, 10**6], "the study has 10 weights"), ([1] * 10**5, "is not built")],
)
def test_a_network_of_more_weights_than_were_sent_is_not_built(
    hidden: list[int], why: str
) -> None:
    config = ExperimentConfig("r", data="digits", model=Spec("mlp", {"hidden": hidden}))
    saved: Any = {"example_spec": {"shape": [4], "classes": ["a", "b"]}, "scale": None}
    state = {"w": torch.zeros(10), "stats": torch.zeros(0)}
    with pytest.raises(ValueError, match=why):
        outputs_of(config, saved, state, torch.zeros(1, 4))


def test_embeddings_are_predicted_from_an_npz_file(tmp_path: Path) -> None:
    done = study(tmp_path, replace(tiny(tmp_path), cycles=0, initial=1.0, rounds=10))
    x = 3 * np.eye(3, 6)
    np.savez(tmp_path / "new.npz", x=x)
    path, rows, *_ = predict_file(done, tmp_path / "new.npz")
    predict_rows = csv.DictReader(path.read_text().splitlines())
    assert (rows, [line["prediction"] for line in predict_rows]) == (3, ["0", "1", "2"])
    np.savez(tmp_path / "wide.npz", x=np.eye(3, 7))
    with pytest.raises(
        ValueError, match=r"rows of shape \(7,\), and the model needs \(6,\)"
    ):
        predict_file(done, tmp_path / "wide.npz")


def test_images_are_predicted_by_their_names_wherever_they_lie_in_a_folder(
    tmp_path: Path,
) -> None:
    image = pytest.importorskip("PIL.Image")
    for i in range(40):
        shade = i % 2
        file = tmp_path / "own" / "north" / ("dark", "light")[shade] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.new("L", (4, 4), i + 200 * shade).save(file)
    data = str(tmp_path / "own")
    done = study(
        tmp_path,
        replace(
            tiny(tmp_path),
            data=data,
            sites=1,
            partition=Spec("natural"),
            cycles=0,
            initial=1.0,
            rounds=20,
        ),
    )
    for name, shade in (("a.png", 210), ("more/b.png", 30), (".hidden.png", 0)):
        (tmp_path / "new" / "more").mkdir(parents=True, exist_ok=True)
        image.new("L", (4, 4), shade).save(tmp_path / "new" / name)
    path, rows, *_ = predict_file(done, tmp_path / "new")
    predict_rows = csv.DictReader(path.read_text().splitlines())
    assert path == tmp_path / "new-predictions.csv" and rows == 2
    outcome = {line["file"]: line["prediction"] for line in predict_rows}
    assert outcome == {"a.png": "light", "more/b.png": "dark"}
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="contains no images"):
        predict_file(done, tmp_path / "none")
    image.new("RGB", (4, 4)).save(tmp_path / "new" / "c.png")
    with pytest.raises(
        ValueError, match=r"c.png could not be read as an image: it has colors"
    ):
        predict_file(done, tmp_path / "new")


def test_a_constant_column_is_scaled_to_zero() -> None:
    scale = Scale(torch.tensor([2.0, 5.0]), torch.tensor([1.0, 0.0]))
    assert scale(torch.tensor([[3.0, 9.0]])).tolist() == [[1.0, 0.0]]


# -- one model per site ----------------------------------------------------------------


def own(folder: Path, training: str, **changes: Any) -> Path:
    config = replace(
        tiny(folder),
        cycles=0,
        initial=1.0,
        rounds=4,
        training=Spec.parse(training),
        partition=Spec("patho", {"classes": 1, "min_samples": 2}),
        validation=0.2,
        **changes,
    )
    np.savez(folder / "new.npz", x=3 * np.eye(3, 6))
    return study(folder, config)


def predict_rows(done: Path, **whose: Any) -> list[dict[str, str]]:
    path = predict_file(done, done.parent / "new.npz", **whose).path
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.long
def test_a_site_predicts_with_the_model_that_it_was_tested_with(tmp_path: Path) -> None:
    done = own(tmp_path, "local")
    path = StudyRun("random", 0).folder(done) / "model.safetensors"
    saved = load_tree(path, path.parent)
    assert saved["state"] is None and list(saved["sites"]) == ["site-0", "site-1", "site-2"]
    by_site = {name: predict_rows(done, site=name) for name in saved["sites"]}
    assert (
        len({str(rows) for rows in by_site.values()}) == 3
    )  # each has seen a single class
    event_log = EventLog()
    config = replace(config_from(read_study(done).study.config), strategy=Spec("random"))
    simulation = build_environment(config, 0, event_log)
    ExperimentRun(simulation, event_log).go()
    for name, site in simulation.members.items():
        assert torch.equal(saved["sites"][name]["w"], site.memory["best"]["w"])


@pytest.mark.long
def test_a_method_with_a_last_word_predicts_with_it(tmp_path: Path) -> None:
    done = own(tmp_path, "fed-avg-ft")
    alike = {str(predict_rows(done, site=f"site-{k}")) for k in range(3)}
    assert len(alike) == 3


def test_without_a_site_or_with_an_unknown_one_the_sites_are_named(tmp_path: Path) -> None:
    done = own(tmp_path, "ditto")
    with pytest.raises(
        ValueError,
        match="personalized model; choose a site with --site: site-0, site-1 and sit",
    ):
        predict_rows(done)
    with pytest.raises(ValueError, match=r"has no site 'site-9'; did you mean 'site-"):
        predict_rows(done, site="site-9")


def test_a_model_for_all_is_meant_unless_a_site_is_named(
    tmp_path: Path, trained: Path
) -> None:
    done = own(
        tmp_path, "fedavg"
    )  # sites keep the model that validates best, each of another round
    path = StudyRun("random", 0).folder(done) / "model.safetensors"
    saved = load_tree(path, path.parent)
    assert predict_rows(done)
    assert all(predict_rows(done, site=name) for name in saved["sites"])
    with pytest.raises(ValueError, match="no personalized models; omit --site hall"):
        predict_file(trained, table(tmp_path / "new.csv", label=False), site="hall")


def test_a_method_that_predicts_with_labeled_rows_is_refused(tmp_path: Path) -> None:
    done = own(tmp_path, "knn-per")
    for site in (None, "site-0"):
        with pytest.raises(
            ValueError, match="knn-per predicts with the labeled examples of a site"
        ):
            predict_rows(done, site=site)


def test_a_resumed_run_still_has_the_models_of_its_sites(tmp_path: Path) -> None:
    done = own(tmp_path, "local")
    before = predict_rows(done, site="site-1")
    (StudyRun("random", 0).folder(done) / "model.safetensors").unlink()
    run_one(Setup(config_from(read_study(done).study.config), done), StudyRun("random", 0))
    assert predict_rows(done, site="site-1") == before


def test_sites_with_their_own_statistics_have_no_one_model(tmp_path: Path) -> None:
    config = replace(
        tiny(tmp_path),
        cycles=0,
        rounds=1,
        model=Spec("tests.experiment.norm:Norm"),
        training=Spec("fedavg", {"bn": "local"}),
    )
    done = study(tmp_path, config)
    np.savez(tmp_path / "new.npz", x=np.eye(3, 6))
    with pytest.raises(
        ValueError, match="has a personalized model; choose a site with --site"
    ):
        predict_file(done, tmp_path / "new.npz", policy=OWN)
    file = predict_file(done, tmp_path / "new.npz", site="site-2", policy=OWN)
    assert file[1] == 3
    with pytest.raises(ValueError, match="is not part of Fallow"):
        predict_file(done, tmp_path / "new.npz", site="site-2")


@pytest.mark.parametrize("part", ["model", "training", "strategy"])
def test_a_folder_that_names_code_of_others_predicts_nothing_and_imports_nothing(
    part: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a study folder from others, since importing a module runs its code."""
    (tmp_path / "code_of_a_sender.py").write_text("class Sent: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    sent = shutil.copytree(trained, tmp_path / "sent")
    page = sent / "study.json"
    details = json.loads(page.read_text())
    details["config"][part] = {"name": "code_of_a_sender:Sent", "fields": {}}
    page.write_text(json.dumps(details))
    new = table(tmp_path / "new.csv", label=False)
    # the strategy is in the name of a run and is not used to predict
    if part == "strategy":
        predict_file(sent, new)
    else:
        with pytest.raises(ValueError, match="'code_of_a_sender:Sent' names code"):
            predict_file(sent, new)
    assert "code_of_a_sender" not in sys.modules
