"""Test text columns at real sites, from agreement to labeling page."""

from __future__ import annotations

import csv
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.core.missing import BUCKETS, name_buckets
from fallow.data import open_dataset
from fallow.data.loaders.hashing import hash_texts
from fallow.deployment.agreement import Agreement, at_sites
from fallow.deployment.schema import Column, Schema, schema_from, schema_of
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.predict import predict_at
from fallow.deployment.site.rows import read_rows
from fallow.deployment.study_file import write_agreement
from fallow.deployment.toml import schema_section
from fallow.privacy.settings import Privacy
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.deployment.label_queues import enter, make_queue
from tests.deployment.simulations import NAMES, TINY, WAITS, Federation

pytest.importorskip("cryptography")
WORDS = {"ill": ("fever", "cough", "rash"), "well": ("control", "vaccination", "visit")}
SCHEMA = Schema(
    "table",
    "classification",
    "y",
    ("ill", "well"),
    (Column("note", text=True), Column("age", "years", may_be_empty=True)),
    (2 + BUCKETS,),
)
SOLVED = replace(
    TINY, training=Spec("closed-form"), encoder=Spec("auto"), initial=8, standardize="none"
)


def write_notes(
    file: Path, n: int = 40, seed: int = 0, *, labeled: bool = True, when: str = "day"
) -> Path:
    """Write notes that contain a word of their class."""
    draw = np.random.default_rng(seed)
    with file.open("w", newline="", encoding="utf-8") as opened:
        lines = csv.writer(opened)
        lines.writerow(["note", "age", "y"])
        for row in range(n):
            label = ("ill", "well")[row % 2]
            note = f"{draw.choice(WORDS[label])}, {when} {row}"
            age = "" if row == 3 else str(draw.integers(20, 80))
            lines.writerow([note, age, label if labeled else ""])
    return file


def test_named_columns_of_an_example_are_texts(tmp_path: Path) -> None:
    example = write_notes(tmp_path / "e.csv")
    schema = schema_of(example, "y", texts=("note",))
    columns = (Column("note", text=True), Column("age", may_be_empty=True))
    assert schema.columns == columns
    assert schema.features == ("age", "age_missing", *name_buckets("note"))
    notes: list[str] = []
    assert schema_of(example, "y", notify=notes.append).columns == columns[1:]
    assert notes[0].endswith(
        "(40 different texts in 40 rows); name it with --text 'note' to use it"
    )
    with pytest.raises(ValueError, match="no column 'notes'; did you mean 'note'"):
        schema_of(example, "y", texts=("notes",))
    with pytest.raises(ValueError, match="'y' is the label or the row name"):
        schema_of(example, "y", texts=("y",))


def test_the_file_says_which_columns_are_texts_and_is_read_back() -> None:
    section = schema_section(SCHEMA)
    assert '{name = "note", text = true}' in section.as_string()
    assert schema_from(section.unwrap()) == SCHEMA
    other = replace(
        SCHEMA, columns=(replace(SCHEMA.columns[0], unit="x"), SCHEMA.columns[1])
    )
    assert other.digest != SCHEMA.digest
    with pytest.raises(ValueError, match="text = true, and values, low, high or may_be"):
        Column("note", text=True, may_be_empty=True)


def test_a_site_has_the_features_of_a_simulation(tmp_path: Path) -> None:
    file = write_notes(tmp_path / "rows.csv")
    rows = read_rows(file, SCHEMA)
    data = open_dataset(file, label="y", columns=("note", "age"))
    assert data.columns == SCHEMA.features
    simulated = torch.cat([data.x, data.x_test]).nan_to_num(-1)
    at_site = rows.x.nan_to_num(-1)
    assert sorted(map(tuple, simulated.tolist())) == sorted(map(tuple, at_site.tolist()))
    assert [column.kind for column in rows.columns] == ["text", "number"]
    empty = tmp_path / "empty.csv"
    empty.write_text("note,age,y\nNA,40,ill\nfever,50,ill\n", encoding="utf-8")
    read = read_rows(empty, SCHEMA)
    assert read.x[0, 2:].abs().max() == 0
    assert torch.equal(read.x[1, 2:], torch.from_numpy(hash_texts(["fever"]))[0])
    assert read.describe(0) == (("note", "", ""), ("age", "40", "years"))


def test_the_agreement_names_the_encoder_of_texts() -> None:
    assert at_sites(SOLVED, "a", 3, SCHEMA).encoder == Spec("hashed-text")
    two = (Column("note", text=True), Column("more", text=True))
    schema = replace(SCHEMA, columns=two, shape=(2 * BUCKETS,))
    assert at_sites(SOLVED, "a", 3, schema).encoder == Spec("hashed-text", {"columns": 2})


def open_clinics(folder: Path, config: ExperimentConfig) -> Federation:
    """Open three sites with files of notes; annotators know the class of each example."""
    secret = new_signing_key()
    names = NAMES[:3]
    agreed = Agreement(
        "clinics",
        at_sites(config, "clinics", 3, SCHEMA),
        SCHEMA,
        names,
        verify_key(secret),
        0,
        WAITS,
    )
    write_agreement(folder / "study.toml", agreed)
    sites = {}
    for number, name in enumerate(names):
        rows = write_notes(folder / f"{name}.csv", seed=number, labeled=False)
        tests = write_notes(folder / f"{name}-test.csv", seed=number + 3, when="visit")
        sites[name] = SiteFolder.create(
            folder / name, folder / "study.toml", name=name, data=str(rows), test=str(tests)
        )
    return Federation(
        folder,
        agreed,
        SCHEMA.example,
        secret,
        sites,
        annotate=lambda site, row: float(row % 2),
    )


@pytest.mark.long
def test_a_study_of_notes_runs_and_predicts_at_its_sites(tmp_path: Path) -> None:
    simulation = open_clinics(tmp_path, replace(SOLVED, privacy=Privacy(secure_sum=True)))
    assert simulation.program().go()
    record = simulation.records()[-1]
    assert record["accuracy"] > 0.8
    revealed = {row["function"]: row["description"] for row in record["revealed"]}
    assert "examples with each hashed n-gram" in revealed["frequencies"]
    hits = []
    for name, site in simulation.sites.items():
        result = predict_at(
            site.path, tmp_path / f"{name}-test.csv", tmp_path / name / "p.csv"
        )
        with open(result.path, encoding="utf-8") as file:
            predicted = [line["prediction"] for line in csv.DictReader(file)]
        hits += [label == ("ill", "well")[row % 2] for row, label in enumerate(predicted)]
    assert float(np.mean(hits)) == pytest.approx(record["accuracy"])
    simulation.close()


def test_the_labeling_page_shows_a_long_text_whole(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    long = "fever & cough since monday. " * 200
    lines = [f'"{long}",40,', *(f"short {row},50," for row in range(5))]
    file.write_text("note,age,y\n" + "\n".join(lines) + "\n", encoding="utf-8")
    browser = enter(make_queue(tmp_path, SCHEMA, read_rows(file, SCHEMA), asked=(0, 1)))
    browser.get()
    page = browser.shown.text
    assert '<div tabindex="0" role="region" aria-label="note">fever &amp; cough' in page
    assert page.count("fever &amp; cough") == 200


def test_a_file_with_hundreds_of_columns_of_text_is_refused_before_they_are_named() -> None:
    columns = [{"name": f"note {number}", "text": True} for number in range(300)]
    settings = {"kind": "table", "task": "regression", "columns": columns}
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="300 columns of free text, more than 200"):
            schema_from(settings)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_many_columns_that_may_be_empty_are_read_in_seconds() -> None:
    columns = [{"name": f"c{number}", "may_be_empty": True} for number in range(30_000)]
    began = time.process_time()
    schema = schema_from({"kind": "table", "task": "regression", "columns": columns})
    assert schema.shape == (60_000,)
    assert time.process_time() - began < 15  # 50 if every name is compared with all others
