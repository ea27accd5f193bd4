from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fallow.core.load_options import LoadOptions
from fallow.data import (
    Dataset,
    check_leak,
    from_arrays,
    from_folder,
    from_npz,
    from_table,
    open_dataset,
)
from fallow.data.loaders.table_files import table_of_frame
from tests.names import CountedName

HEADER = "id,age,ward,clinic,sick"


def table(
    folder: Path, *rows: str, header: str = HEADER, name: str = "patients.csv"
) -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def patients(n: int = 20) -> list[str]:
    """Return n examples; the last two are unlabeled."""
    labels = [*(("no", "yes")[i % 2] for i in range(n - 2)), "", " "]
    return [
        f"p{i},{20 + i},{'AB'[i % 2]},{('north', 'south')[i % 2]},{labels[i]}"
        for i in range(n)
    ]


def test_a_csv_table_becomes_numbers_one_hot_texts_sites_and_row_names(
    tmp_path: Path,
) -> None:
    d = open_dataset(table(tmp_path, *patients()), label="sick", site="clinic")
    assert d.name == "patients" and d.classes == ("no", "yes")
    assert d.columns == ("age", "ward=A", "ward=B")
    assert d.site_names == ("north", "south")
    assert "column 'ward' contains texts and became 2 one-hot columns" in d.notes[0]
    assert "'id' has the names of examples" in d.notes[1]
    assert len(d.x) == 16 and len(d.x_test) == 4 and d.y_test.bincount().tolist() == [2, 2]
    assert d.ids is not None and d.sites is not None
    for name, x, y, site in zip(d.ids, d.x, d.y, d.sites, strict=True):
        number = int(name[1:])
        odd = number % 2
        assert x.tolist() == [20 + number, 1 - odd, odd]
        assert y == (-1 if number >= 18 else odd) and site == odd
    check_leak(d)


def test_the_same_table_gives_the_same_hold_out(tmp_path: Path) -> None:
    path = table(tmp_path, *patients())
    assert open_dataset(path, label="sick").ids == open_dataset(path, label="sick").ids


@pytest.mark.parametrize(
    ("rows", "label", "site", "message"),
    [
        (patients(), "sik", None, "no column 'sik'; did you mean 'sick'"),
        (patients(), "sick", "clinics", "no column 'clinics'; did you mean 'clinic'"),
        (patients(), "sick", "sick", "both label and site"),
        (
            ["a,1,A,n,yes", "b,2,A,n,yes"],
            "sick",
            None,
            "only the class 'yes'; label examples",
        ),
        (["a,1,A,n,", "b,2,A,n,"], "sick", None, "no label at all"),
        (["a,inf,A,n,yes", "b,1e39,A,n,no"], "sick", None, "column 'age' has 2 infinite"),
        (
            ["a,1,A,,yes", "b,2,A,n,no"],
            "sick",
            "clinic",
            "1 rows have no site in column 'clinic'",
        ),
        (["a,1,A,n,yes", "b,2,A,n"], "sick", None, "row 2 has 4 cells and the header 5"),
        ([], "sick", None, "has no rows"),
        (
            [f"{i},1,ward {i},n,{i % 2}" for i in range(60)],
            "sick",
            None,
            r"no feature column .*'ward': it is an identifier \(60 different texts in 60 rows\)",
        ),
        (
            ["a,1,A,n,yes", "b,old,A,n,no", "c,3,B,n,no"],
            "sick",
            None,
            "column 'age', row 2: 'old' is not a number, and the other 2 are; correct it",
        ),
        (
            [f"{i},{i},A,n,{i}" for i in range(120)],
            "sick",
            None,
            "120 different integers",
        ),
        ([f"{i},{i},A,n,0.5" for i in range(9)], "sick", None, "constant or all missing"),
        (
            [f"{i},{i},A,n,2024-01-0{1 + i % 3}" for i in range(9)],
            "sick",
            None,
            r"are 3 different dates or times \('2024-01-01', ...\); set the column of labels",
        ),
        (
            [f"{i},{i},A,n,Anna {i}" for i in range(30)],
            "sick",
            None,
            r"are 30 different texts in 30 rows \('Anna 0', ...\); set the column of labels",
        ),
    ],
)
def test_a_table_that_cannot_be_used_says_why(
    tmp_path: Path, rows: list[str], label: str, site: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        open_dataset(table(tmp_path, *rows), label=label, site=site)


def test_dates_are_classes_where_that_is_said(tmp_path: Path) -> None:
    rows = [f"{i},{i},A,n,2024-01-0{1 + i % 3}" for i in range(9)]
    values = open_dataset(table(tmp_path, *rows), label="sick", task="classification")
    assert values.classes == ("2024-01-01", "2024-01-02", "2024-01-03")


def test_the_names_of_many_columns_are_not_compared_pair_by_pair() -> None:
    names = [CountedName(f"column {number}") for number in range(500)]
    frame = pd.DataFrame(np.zeros((1, len(names))))
    frame.columns = pd.Index(names, dtype=object)
    CountedName.comparisons = 0
    assert len(table_of_frame(frame, "wide").columns) == len(names)
    assert CountedName.comparisons <= 10 * len(names)


def test_a_table_without_features_or_with_a_double_column_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="no feature column"):
        open_dataset(table(tmp_path, "a,0", "b,1", header="id,y"), label="y")
    with pytest.raises(ValueError, match="more than one column 'x'"):
        open_dataset(table(tmp_path, "1,2,0", "2,3,1", header="x,x,y"), label="y")
    with pytest.raises(ValueError, match="no file or folder"):
        open_dataset(tmp_path / "absent.csv", label="y")
    (tmp_path / "noise.csv").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(
        ValueError, match="is not a text table, because it contains bytes of value 0"
    ):
        open_dataset(tmp_path / "noise.csv", label="y")


def test_whole_numbers_are_classes_in_their_order_and_other_numbers_are_targets(
    tmp_path: Path,
) -> None:
    whole = table(
        tmp_path, *(f"{i},{(9, 10, 2)[i % 3]}.0" for i in range(30)), header="x,y"
    )
    assert open_dataset(whole, label="y").classes == ("2", "9", "10")
    assert open_dataset(whole, label="y", task="regression").task == "regression"
    real = table(
        tmp_path, *(f"{i},{i / 7 if i % 5 else ''}" for i in range(30)), header="x,y"
    )
    d = open_dataset(real, label="y")
    assert d.task == "regression" and int((~d.is_labeled).sum()) == 6 and len(d.y_test) == 5


def test_a_second_table_is_the_test_set_with_the_same_columns(tmp_path: Path) -> None:
    train = table(tmp_path, "1,A,no", "2,A,yes", "3,A,", header="x,ward,y")
    test = table(tmp_path, "4,B,yes", header="x,ward,y", name="test.csv")
    d = from_table(train, LoadOptions(label="y"), test=test)
    assert d.columns == ("x", "ward=A", "ward=B")
    assert d.x_test.tolist() == [[4, 0, 1]] and d.y_test.tolist() == [1] and len(d.x) == 3
    for text, output in [
        ("1,A,no", "1 of 1 test examples are also training examples"),
        ("4,A,", "1 test examples have no label"),
        ("4,A,yess", "label 'yess' is not one of the classes; did you mean 'yes'"),
    ]:
        with pytest.raises(ValueError, match=output):
            from_table(
                train,
                LoadOptions(label="y"),
                test=table(tmp_path, text, header="x,ward,y", name="test.csv"),
            )
    with pytest.raises(ValueError, match="has no column 'ward'"):
        from_table(
            train,
            LoadOptions(label="y"),
            test=table(tmp_path, "4,no", header="x,y", name="test.csv"),
        )


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns: dict[str, Any] = {
        "age": [float(i) for i in range(10)],
        "ward": ["A", "B"] * 5,
        "sick": [0, 1, 0, 1, 0, 1, 0, 1, None, None],
    }
    parquet.write_table(pa.table(columns), tmp_path / "p.parquet")
    d = open_dataset(tmp_path / "p.parquet", label="sick")
    assert d.classes == ("0", "1") and d.columns == ("age", "ward=A", "ward=B")
    assert int((d.y == -1).sum()) == 2
    (tmp_path / "broken.parquet").write_text("no")
    with pytest.raises(ValueError, match="could not be read as Parquet"):
        open_dataset(tmp_path / "broken.parquet", label="sick")


def test_arrays_with_a_test_set_keep_it_and_refuse_a_leak() -> None:
    x, y = np.eye(4), np.array([0, 1, 5, -1])
    d = from_arrays(x, y, ["b", "a", "b", "b"], x_test=2 * np.eye(4), y_test=[5, 5, 0, 1])
    assert d.classes == ("0", "1", "5") and d.y.tolist() == [0, 1, 2, -1]
    assert d.y_test.tolist() == [2, 2, 0, 1] and d.site_names == ("a", "b")
    with pytest.raises(ValueError, match="2 of 2 test examples are also training examples"):
        from_arrays(x, y, x_test=x[:2], y_test=[0, 1])
    with pytest.raises(ValueError, match="both x_test and y_test"):
        from_arrays(x, y, x_test=x)
    with pytest.raises(ValueError, match="4 rows but 3 labels"):
        from_arrays(x, y[:3])
    with pytest.raises(ValueError, match=r"\(n, features\)"):
        from_arrays([1.0, 2.0], [0, 1])
    with pytest.raises(ValueError, match="4 rows but 2 row names"):
        from_arrays(x, y, ids=["a", "b"])
    with pytest.raises(ValueError, match="sites are float64"):
        from_arrays(x, y, [0.5] * 4)
    with pytest.raises(ValueError, match="give real numbers"):
        from_arrays([["a"], ["b"]], [0, 1])
    with pytest.raises(ValueError, match="column 1 of the training rows has 3 values"):
        from_arrays(
            np.where(x == 1, 1, np.array([0, np.inf, 0, 0])), y, x_test=x + 9, y_test=y % 2
        )


def test_a_regression_hold_out_needs_no_classes() -> None:
    d = from_arrays(torch.arange(20.0)[:, None], torch.linspace(0, 1, 20))
    assert d.task == "regression" and len(d.y_test) == 4


def test_an_npz_file_of_embeddings_is_read_without_pickles(tmp_path: Path) -> None:
    path = tmp_path / "embedded.npz"
    np.savez(
        path,
        x=np.arange(40.0).reshape(20, 2),
        y=np.arange(20) % 2,
        site=np.arange(20) // 5,
    )
    d = open_dataset(path)
    assert d.x.shape == (16, 2) and d.site_names == ("0", "1", "2", "3")
    np.savez(path, features=np.eye(2), y=np.arange(2))
    with pytest.raises(ValueError, match="no array 'x'"):
        from_npz(path)
    np.savez(path, x=np.eye(2), y=np.array([{}, {}]))
    with pytest.raises(ValueError, match="an array in it contains Python objects"):
        from_npz(path)
    path.write_text("no archive")
    with pytest.raises(ValueError, match="could not be read"):
        from_npz(path)


def folder_of_images(root: Path, mode: str = "L", **sizes: tuple[int, int]) -> Path:
    image = pytest.importorskip("PIL.Image")
    for i in range(12):
        kind = ("cat", "dog", "unlabeled")[i % 3]
        path = root / ("north", "south")[i % 2] / kind
        path.mkdir(parents=True, exist_ok=True)
        name = f"{i:02}"
        image.new(
            mode, sizes.get(f"i{name}", (5, 4)), i * 20 if mode == "L" else (i, 0, 255)
        ).save(path / f"{name}.png")
    return root


def test_a_folder_of_images_has_sites_classes_and_unlabeled_ones(tmp_path: Path) -> None:
    d = open_dataset(folder_of_images(tmp_path))
    assert d.classes == ("cat", "dog") and d.site_names == ("north", "south")
    assert d.x.shape[1:] == (1, 4, 5) and len(d.x) + len(d.x_test) == 12
    assert int((d.y == -1).sum()) == 4 and d.ids is not None
    for name, x, y in zip(d.ids, d.x, d.y, strict=True):
        _, kind, file = name.split("/")
        assert y == {"cat": 0, "dog": 1, "unlabeled": -1}[kind]
        assert x[0, 0, 0] == pytest.approx(int(file[:2]) * 20 / 255, abs=1e-6)


def test_color_images_have_three_channels(tmp_path: Path) -> None:
    d = from_folder(folder_of_images(tmp_path, "RGB"))
    assert d.x.shape[1:] == (3, 4, 5) and d.x[0, 2, 0, 0] == 1


def test_an_image_of_another_size_is_resized_and_a_broken_one_named(tmp_path: Path) -> None:
    folder_of_images(tmp_path / "a", i07=(6, 4))
    d = from_folder(tmp_path / "a")
    assert d.x.shape[1:] == (1, 4, 5)
    output = "1 of 12 images were resized to the most frequent size, 5 x 4"
    assert output in d.notes
    folder_of_images(tmp_path / "b")
    (tmp_path / "b" / "north" / "cat" / "notes.txt").write_text("not an image")
    with pytest.raises(ValueError, match=r"notes.txt could not be read as an image"):
        from_folder(tmp_path / "b")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="contains no images"):
        from_folder(tmp_path / "empty")


def test_open_dataset_takes_a_name_or_a_path_and_explains_the_rest(tmp_path: Path) -> None:
    assert isinstance(open_dataset("iris"), Dataset)
    with pytest.raises(ValueError, match="did you mean 'iris'"):
        open_dataset("irs")
    with pytest.raises(ValueError, match="no file or folder"):
        open_dataset(str(tmp_path / "absent.csv"))
    path = table(tmp_path, *patients())
    with pytest.raises(ValueError, match="set its column of labels with --label"):
        open_dataset(path)
    assert open_dataset(path, label="sick", site="clinic").site_names == ("north", "south")
    with pytest.raises(ValueError, match="iris is a named dataset: label='sick' does not"):
        open_dataset("iris", label="sick")
    advice = {
        "notes.txt": "rename it to .csv",
        "a.csv.gz": "unpack it",
        "a.xls": r"\.xlsx$",
    }
    for name, part in advice.items():
        (tmp_path / name).write_text("x")
        with pytest.raises(ValueError, match=f"not a dataset that Fallow can read.*{part}"):
            open_dataset(tmp_path / name)


def test_agreed_classes_give_every_site_the_same_ids_whatever_it_has_labeled(
    tmp_path: Path,
) -> None:
    agreed = ("no", "maybe", "yes")
    one = table(tmp_path, *(f"{i},yes" for i in range(5)), header="x,y")
    assert set(open_dataset(one, label="y", classes=agreed).y.tolist()) == {2}
    nothing = table(tmp_path, *(f"{i}," for i in range(5)), header="x,y")
    d = open_dataset(nothing, label="y", classes=agreed)
    assert d.classes == agreed and len(d.x_test) == 0 and not d.is_labeled.any()
    assert from_arrays(np.eye(2), [1, -1], classes=("0", "1")).y.tolist() == [1, -1]
    with pytest.raises(
        ValueError, match=r"label 'maybee' is not one .*did you mean 'maybe'"
    ):
        from_arrays(np.eye(2), ["maybee", "no"], classes=agreed)
    with pytest.raises(
        ValueError, match=r"iris is a named dataset: classes=.* does not apply"
    ):
        open_dataset("iris", classes=agreed)


# -- labels --------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "?", "-1"])
def test_among_whole_numbers_a_missing_label_is_unlabeled_in_any_spelling(
    tmp_path: Path, missing: str
) -> None:
    rows = [f"{i},{(4, 7, missing)[i % 3]}" for i in range(30)]
    d = open_dataset(table(tmp_path, *rows, header="x,y"), label="y")
    assert d.classes == ("4", "7") and int((~d.is_labeled).sum()) == 10


def test_among_targets_a_missing_one_is_unlabeled_and_minus_one_is_a_number(
    tmp_path: Path,
) -> None:
    rows = [f"{i},{(i / 7, -1, 'NA')[i % 3]}" for i in range(30)]
    d = open_dataset(table(tmp_path, *rows, header="x,y"), label="y")
    assert d.task == "regression" and int((~d.is_labeled).sum()) == 10
    assert -1.0 in torch.cat([d.y, d.y_test]).tolist()


def test_minus_one_is_a_class_only_if_it_is_listed() -> None:
    x = np.arange(12.0)[:, None]
    y = np.array([-1, 1] * 6)
    with pytest.raises(ValueError, match=r"only the class '1' \(-1 is unlabeled, unless"):
        from_arrays(x, y)
    d = from_arrays(x, y, classes=("-1", "1"))
    assert torch.cat([d.y, d.y_test]).bincount().tolist() == [6, 6]


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.str_])
def test_huge_whole_numbers_are_different_classes(kind: type) -> None:
    names = ("3", "9007199254740992", "9007199254740993")
    y: np.ndarray[Any, Any] = np.array([int(name) for name in names] * 5).astype(kind)
    assert from_arrays(np.arange(15.0)[:, None], y).classes == names


def test_an_unknown_task_and_sites_of_no_test_rows_are_refused() -> None:
    x = np.arange(12.0)[:, None]
    y = ["a", "b"] * 6
    with pytest.raises(ValueError, match="task is 'class'; give one of 'auto', 'class"):
        from_arrays(x, y, task="class")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has the sites of test examples, and no test"):
        from_arrays(x, y, sites_test=["north"])
    with pytest.raises(ValueError, match="has more than one column 'age'"):
        from_arrays(np.eye(12)[:, :2], y, columns=["age", "age"])
