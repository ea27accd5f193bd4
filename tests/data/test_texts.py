"""Columns of free text in frames and files: features, notes and predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

import fallow as fl
from fallow.core.missing import BUCKETS, CHARACTERS, WORDS, find_text_columns, name_buckets
from fallow.data import open_dataset
from fallow.data.loaders.features import read_features, read_rows
from fallow.data.loaders.hashing import NGRAMS, hash_texts
from tests.data.kinds import spec_of

COMPLAINTS = {
    "ill": ["fever", "cough", "rash"],
    "well": ["control", "vaccination", "visit"],
}


def make_frame(n: int = 90) -> pd.DataFrame:
    """Return notes that contain a word of their class, and ages, some of them missing."""
    draw = np.random.default_rng(0)
    labels = draw.choice(list(COMPLAINTS), n)
    notes = []
    for row, label in enumerate(labels):
        word = draw.choice(COMPLAINTS[label])
        notes.append(f"{word}, seen on day {row} by {draw.choice(['Ann', 'Bea'])}")
    frame = pd.DataFrame(
        {
            "note": notes,
            "age": draw.integers(20, 80, n).astype(float),
            "ward": [("a", "b", "c")[row % 3] for row in range(n)],
            "state": labels,
        }
    )
    frame.loc[3, "note"] = None
    frame.loc[5, "age"] = np.nan
    return frame


LISTED = ["note", "age"]


def test_listed_free_text_becomes_hashed_features_behind_the_other_columns() -> None:
    data = fl.from_frame(make_frame(), label="state", site="ward", columns=LISTED)
    assert data.columns == ("age", "age_missing", *name_buckets("note"))
    assert find_text_columns(data.columns) == ("note",)
    assert data.missing is not None and data.missing.levels == ()
    assert any("'note' is free text and became 4,096 hashed" in note for note in data.notes)
    assert data.reading is not None
    kinds = {column.name: column.kind for column in data.reading.columns}
    assert (kinds["note"], kinds["age"]) == ("text", "number")


def test_free_text_that_is_not_listed_is_left_out_with_the_way_to_use_it() -> None:
    data = fl.from_frame(make_frame(), label="state", site="ward")
    assert data.columns == ("age", "age_missing")
    (note,) = [note for note in data.notes if "'note'" in note]
    assert note.endswith("; name it with --columns (columns=) to use it as text")
    with pytest.raises(ValueError, match=r"no feature column \('note': .* use it as t"):
        fl.from_frame(make_frame(), label="state", site="ward", drop=["age"])


def test_a_file_and_a_frame_have_the_same_features(tmp_path: Path) -> None:
    frame = make_frame()
    frame.loc[7, "note"] = 'a "quoted", long\nnote'
    frame.to_csv(tmp_path / "frame.csv", index=False)
    file = open_dataset(
        tmp_path / "frame.csv", label="state", site="ward", columns=tuple(LISTED)
    )
    data = fl.from_frame(frame, label="state", site="ward", columns=LISTED)
    assert file.columns == data.columns
    np.testing.assert_array_equal(file.x.numpy(), data.x.numpy())


def test_rows_to_predict_have_the_features_of_training(tmp_path: Path) -> None:
    frame = make_frame()
    frame.to_csv(tmp_path / "new.csv", index=False)
    texts = [
        "" if note is None else str(note)
        for note in frame["note"].where(frame["note"].notna(), "")
    ]
    columns = ("age", "age_missing", *name_buckets("note"))
    marks = (("age_missing", "age"),)
    of_frame = read_features(frame, spec_of((2 + BUCKETS,), columns, marks))
    np.testing.assert_array_equal(of_frame[:, 2:], hash_texts(texts))
    of_file = read_rows(tmp_path / "new.csv", spec_of((2 + BUCKETS,), columns, marks))
    np.testing.assert_array_equal(of_file.x.numpy(), of_frame)
    lacking = frame.drop(columns="note").assign(notes="a")
    with pytest.raises(ValueError, match="no column 'note'; did you mean 'notes'"):
        read_features(lacking, spec_of((2 + BUCKETS,), columns, marks))
    lacking.to_csv(tmp_path / "lacking.csv", index=False)
    with pytest.raises(ValueError, match="no column 'note'; did you mean 'notes'"):
        read_rows(tmp_path / "lacking.csv", spec_of((2 + BUCKETS,), columns, marks))


def test_rows_with_missing_numbers_can_be_left_out_and_empty_notes_stay() -> None:
    data = fl.from_frame(
        make_frame(), label="state", site="ward", columns=LISTED, drop_rows=True
    )
    assert data.missing is None
    assert len(data.x) + len(data.x_test) == 89


@pytest.mark.long
def test_a_study_of_notes_uses_their_encoder_and_learns_from_them() -> None:
    frame = make_frame(240)
    data = fl.from_frame(frame, label="state", site="ward", columns=["note"])
    run = fl.run(
        fl.Federation(data, fl.Natural()), "margin", cycles=1, initial=20, budget=10
    )
    assert str(run.config.encoder) == "hashed-text"
    predicted = run.predict(frame)
    assert float(np.mean(predicted == frame["state"].to_numpy())) > 0.8
    smaller = fl.run(
        fl.Federation(data, fl.Natural()),
        "random",
        cycles=1,
        encoder="hashed-text:features=64",
    )
    assert str(smaller.config.encoder) == "hashed-text:features=64"


def test_hashed_features_are_those_of_scikit_learn_for_whole_texts() -> None:
    texts = [
        "É clair ΑΣ ΟΔΟΣ. İstanbul",
        "word,word; word-word",
        "a\x1cb\x85c nbsp\xa0x",
        "",
    ]
    words = HashingVectorizer(n_features=WORDS, norm=None)
    characters = HashingVectorizer(
        n_features=CHARACTERS, analyzer="char_wb", ngram_range=NGRAMS, norm=None
    )
    x = hash_texts(texts)
    np.testing.assert_array_equal(x[:, :WORDS], words.transform(texts).toarray())
    np.testing.assert_array_equal(x[:, WORDS:], characters.transform(texts).toarray())
    assert not hash_texts(["", " "]).any()
