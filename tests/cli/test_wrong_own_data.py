"""Unusable user data raises an error of one sentence, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Command, contents, table

RUN = ("run", "tiny.toml", "--data")
TABLE = (*RUN, "bad.csv", "--label", "sick")
LINES = "\n".join(f"{i * 0.5},{'ny'[i // 2 % 2]}" for i in range(40))


def arrays(path: Path, **changed: object) -> None:
    draw = np.random.default_rng(1)
    value: dict[str, Any] = {"x": draw.normal(size=(60, 6)), "y": np.arange(60) % 3}
    np.savez(path, **{**value, **changed})


@pytest.mark.parametrize(
    ("write", "words", "sentence"),
    [
        (
            lambda p: table(p / "bad.csv"),
            (*TABLE, "--id", "patient"),
            "no column 'patient'",
        ),
        (
            lambda p: table(p / "bad.csv"),
            (*TABLE, "--drop", "ages"),
            "no column 'ages'; did you mean 'age'?",
        ),
        (
            lambda p: table(p / "bad.csv"),
            (*TABLE, "--columns", "age,kidn"),
            "no column 'kidn'; did you mean 'kind'?",
        ),
        (
            lambda p: table(p / "bad.csv"),
            (*TABLE, "--drop", "sick"),
            "column 'sick' is the label and is also dropped; choose",
        ),
        (
            lambda p: table(p / "bad.csv"),
            (*TABLE, "--columns", "sick"),
            "bad.csv has no feature column",
        ),
        (
            lambda p: (p / "bad.csv").write_text("dose,dose,sick\n1,2,n\n"),
            TABLE,
            "bad.csv has more than one column 'dose'; rename one",
        ),
        (
            lambda p: (p / "bad.csv").write_text(f"dose,sick\n{LINES}\n1,2,3\n"),
            TABLE,
            "bad.csv: row 41 has 3 cells and the header 2; correct this row",
        ),
        (
            lambda p: (p / "bad.csv").write_text(f"dose,sick\n{LINES}\nten,y\n"),
            TABLE,
            "bad.csv: column 'dose', row 41: 'ten' is not a number, and the other 40 are",
        ),
        (
            lambda p: (p / "bad.csv").write_text(f"dose,sick\n{LINES}\n1e39,y\n"),
            TABLE,
            "column 'dose' has 1 infinite values (beyond 3.4e38 counts), the first in row 41",
        ),
        (
            lambda p: (p / "bad.csv").write_text(f"country,sick\nch{LINES[:0]},n\nch,y\n"),
            TABLE,
            "no feature column ('country': every row has 'ch'); add one",
        ),
        (
            lambda p: (p / "bad.csv").write_text("dose,sick\n"),
            TABLE,
            "bad.csv has no rows; give a header and at least one row",
        ),
        (
            lambda p: (p / "bad.csv").write_text(
                "dose,sick\n" + "\n".join(f"{i * 0.5},{i}" for i in range(1_000))
            ),
            TABLE,
            "the labels are 1000 different integers",
        ),
        (
            lambda p: (p / "bad.csv").write_text(
                "dose,sick\n" + "\n".join(f"{i * 0.5},n" for i in range(40))
            ),
            TABLE,
            "only the class 'n'; label examples",
        ),
        (
            lambda p: (p / "bad.csv").write_bytes(b"\0\1\2\3" * 999),
            TABLE,
            "bad.csv is not a text table, because it contains bytes of value 0",
        ),
        (
            lambda p: (p / "bad.parquet").write_text("no"),
            (*RUN, "bad.parquet", "--label", "sick"),
            "bad.parquet could not be read as Parquet",
        ),
        (
            lambda p: arrays(p / "bad.npz", lables=np.zeros(60)),
            (*RUN, "bad.npz"),
            "has unknown arrays, 'lables'; rename or omit them",
        ),
        (
            lambda p: arrays(p / "bad.npz", x=np.full((60, 6), np.nan)),
            (*RUN, "bad.npz"),
            "has 60 values that are not finite",
        ),
        (
            lambda p: arrays(p / "bad.npz", x=np.zeros((60, 1, 4, 4), dtype=np.int32)),
            (*RUN, "bad.npz"),
            "images are int32 values with unknown maximum",
        ),
        (
            lambda p: arrays(p / "bad.npz", y=np.arange(59) % 3),
            (*RUN, "bad.npz"),
            "60 rows but 59 labels; give one per row",
        ),
        (
            lambda p: None,
            (*RUN, "blobs.npz", "--drop", "age"),
            "blobs.npz is a file of arrays: drop=('age',) does not apply to it; omit --drop",
        ),
        (
            lambda p: (p / "photos" / "a" / "cat").mkdir(parents=True),
            (*RUN, "photos"),
            "photos contains no images; put them in site/class/*",
        ),
        (
            lambda p: (p / "tiny.toml").write_text("rounds = = 2"),
            (*RUN, "blobs.npz"),
            "tiny.toml is not valid TOML",
        ),
        (lambda p: None, ("compare", "tiny.toml", "--seeds", "0"), "'--seeds'"),
        (lambda p: None, ("compare", "tiny.toml", "--jobs", "-2"), "'--jobs'"),
        (
            lambda p: None,
            ("run", "tiny.toml", "--set", "budget=0.95"),
            "more than the unlabeled pool; lower one of them",
        ),
    ],
)
def test_one_sentence_says_what_is_wrong(
    fallow: Command,
    folder: Path,
    write: Callable[[Path], object],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    write(folder)
    before = contents(folder)
    output = fallow(*words)
    assert output.code == 2, output
    assert output.out == ""
    assert sentence in output.says()
    assert contents(folder) == before


@pytest.mark.long
def test_other_settings_in_the_folder_of_a_study_are_named(
    fallow: Command, folder: Path
) -> None:
    table(folder / "own.csv")
    words = ("run", "tiny.toml", "--data", "own.csv", "--label", "sick", "--out", "s")
    assert fallow(*words).code == 0
    again = fallow(*words, "--resume", "--drop", "kind")
    assert again.code == 2 and "started with other settings (drop differ)" in again.says()


def test_the_folder_of_a_study_is_no_data_and_hides_no_recipe(folder: Path) -> None:
    from fallow.cli.options import named_config

    (folder / "demo").mkdir()
    assert named_config("demo", None) == (None, "demo")  # such as images
    (folder / "demo" / "study.json").write_text("{}")
    assert named_config("demo", None) == ("demo", None)


@pytest.mark.long
def test_nulls_of_parquet_are_missing_cells(fallow: Command, folder: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table(folder / "own.csv")
    df = pd.read_csv(folder / "own.csv")
    df["age"] = df["age"].astype("Int64")
    df.loc[:4, "age"] = pd.NA
    df.loc[7, "kind"] = None
    df.to_parquet(folder / "own.parquet")
    done = fallow("run", "tiny.toml", "--data", "own.parquet", "--label", "sick")
    assert done.code == 0, done
    assert "empty cells: 6 (age 5 and kind 1)" in done.out
    assert "the sites impute empty cells together" in done.out


@pytest.mark.long
def test_a_site_of_one_row_and_rows_without_a_label_are_said(
    fallow: Command, folder: Path
) -> None:
    table(folder / "own.csv")
    with (folder / "own.csv").open("a") as file:
        file.write("west,33,a,y\nnorth,34,a,\n")
    words = ("run", "tiny.toml", "--data", "own.csv", "--label", "sick", "--site", "ward")
    output = fallow(*words, "--dry-run").out
    assert "warning: only one example at west" in output
    assert "1 left out: no label" in output and "rows: 62 read, 61 kept" in output
    assert "unlabeled examples left out" not in output, "said twice"


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    ("out", "why"),
    [
        # also fails for root, who may write to any folder
        ("own.csv/study", "cannot be written (Not a directory)"),
        ("own.csv", "own.csv"),
        ("/proc/study", "cannot be written"),
    ],
)
def test_a_place_where_no_folder_can_be_is_named_before_anything_starts(
    fallow: Command, folder: Path, command: str, out: str, why: str
) -> None:
    table(folder / "own.csv")
    before = contents(folder)
    output = fallow(
        command, "tiny.toml", "--data", "own.csv", "--label", "sick", "--out", out
    )
    assert output.code != 0
    assert why in output.says()
    assert contents(folder) == before


def picture(path: Path, size: int, shade: int) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (size, size), shade).save(path)


def pictures(folder: Path) -> None:
    """Write forty images of two classes, most of 8 by 8 pixels."""
    pytest.importorskip("PIL")
    for i in range(40):
        kind = "dark" if i % 2 else "light"
        size = 12 if i % 10 == 0 else 8
        picture(folder / "photos" / "ward" / kind / f"{i}.png", size, 3 * i)


@pytest.mark.long
def test_pictures_of_several_sizes_are_brought_to_one_and_that_is_said(
    fallow: Command, folder: Path
) -> None:
    pictures(folder)
    output = fallow("run", "tiny.toml", "--data", "photos")
    assert output.code == 0, output
    assert "4 of 40 images were resized to the most frequent size" in " ".join(
        output.out.split()
    )


def test_a_broken_picture_is_named(fallow: Command, folder: Path) -> None:
    pictures(folder)
    (folder / "photos" / "ward" / "dark" / "1.png").write_bytes(b"no picture")
    output = fallow("run", "tiny.toml", "--data", "photos")
    assert output.code == 2
    assert "1.png" in output.says() and "could not be read" in output.says()


@pytest.mark.long
def test_latin_1_is_read_and_said(fallow: Command, folder: Path) -> None:
    table(folder / "own.csv")
    text = (folder / "own.csv").read_text().replace(",a,", ",\xe9t\xe9,")
    (folder / "own.csv").write_bytes(text.encode("latin-1"))
    command = ["run", "tiny.toml", "--data", "own.csv", "--label", "sick"]
    for words in (command, [*command, "--dry-run"]):
        output = fallow(*words)
        assert output.code == 0, output
        assert "was read as Latin-1" in " ".join(output.out.split())


@pytest.mark.long
def test_a_thousand_classes_are_counted_before_anything_starts(
    fallow: Command, folder: Path
) -> None:
    lines = [f"{i * 0.5},class {i % 1000}" for i in range(2_000)]
    (folder / "own.csv").write_text("dose,sick\n" + "\n".join(lines))
    output = fallow("run", "tiny.toml", "--data", "own.csv", "--label", "sick", "--dry-run")
    assert output.code == 0, output
    assert "classes: 1000" in output.out


@pytest.mark.long
def test_half_a_million_rows_are_read_and_counted(fallow: Command, folder: Path) -> None:
    pytest.importorskip("pyarrow")
    with (folder / "own.csv").open("w") as file:
        file.write("dose,sick\n")
        file.writelines(f"{i % 997 * 0.5},{'ny'[i // 3 % 2]}\n" for i in range(500_000))
    output = fallow("run", "tiny.toml", "--data", "own.csv", "--label", "sick", "--dry-run")
    assert output.code == 0, output
    assert "rows: 500,000 read, all kept" in output.out
