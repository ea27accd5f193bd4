"""Tables in the formats of their sources, from stubs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fallow.data import Dataset, check_leak, load
from fallow_papers.datasets.catalog import ENTRIES
from fallow_papers.datasets.formats import one_hot
from fallow_papers.datasets.sources import SOURCES

TABLE_1 = (
    *("ct", "kegg_undirected", "online_video", "wec_sydney", "sarcos_full", "stock"),
    "mlr_knn_rng",
)
RNG = np.random.default_rng(0)


def write_zip(folder: Path, name: str, text: str, inside: str = "") -> None:
    file = SOURCES[name].file
    with zipfile.ZipFile(folder / file.name, "w") as archive:
        archive.writestr("readme.txt", "about")
        archive.writestr(inside + file.members[0], text)


def lines(*rows: Any, separator: str = ",") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def whole(d: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all examples and targets, sorted by target."""
    x = torch.cat([d.x, d.x_test])
    y = torch.cat([d.y, d.y_test])
    return x[y.argsort()], y.sort().values


def ct_rows(n: int = 20) -> list[list[Any]]:
    """Return patient, three numbers (the second constant) and the target 0, 1, 2, ..."""
    return [[i % 3 + 9, i / 4, -0.25, 7 - i, i] for i in range(n)]


HEADER = ["patientId", "value0", "value1", "value2", "reference"]


def test_ct_has_patients_as_sites_and_loses_its_constant_columns(tmp_path: Path) -> None:
    write_zip(tmp_path, "ct", lines(HEADER, *ct_rows()))
    d = load("ct", tmp_path)
    x, y = whole(d)
    assert d.task == "regression" and d.columns == ("value0", "value2")
    assert x.tolist() == [[i / 4, 7 - i] for i in range(20)] and y.tolist() == list(
        range(20)
    )
    assert d.site_names == ("patient 9", "patient 10", "patient 11") and d.sites is not None
    assert d.sites.tolist() == [int(target) % 3 for target in d.y]
    assert d.notes == (
        "constant columns left out: value1",
        "20 rows and 2 columns, but the published table has 53500 and 379",
    )
    check_leak(d)


def test_an_unpacked_table_and_an_archive_in_an_archive_are_read_alike(
    tmp_path: Path,
) -> None:
    write_zip(tmp_path, "ct", lines(HEADER, *ct_rows()), inside="data\\")
    first = load("ct", tmp_path)
    outer = tmp_path / SOURCES["ct"].file.name
    inner = io.BytesIO(outer.read_bytes())
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("empty.zip", b"PK\x05\x06" + bytes(18))
        archive.writestr("inner.zip", inner.getvalue())
    second = load("ct", tmp_path)
    outer.unlink()
    (tmp_path / SOURCES["ct"].file.members[0]).write_text(lines(HEADER, *ct_rows()))
    for again in (second, load("ct", tmp_path)):
        assert torch.equal(again.x, first.x) and torch.equal(again.y_test, first.y_test)


def test_kegg_leaves_out_rows_with_a_question_mark_and_its_first_column(
    tmp_path: Path,
) -> None:
    rows = [
        [f"path,way {i}", *RNG.normal(size=25).round(3), i, 1.5 * i, -i] for i in range(12)
    ]
    rows[4][4] = rows[7][28] = "?"
    rows[8][0] = "?"  # a name is not a feature
    text = "".join(f'"{row[0]}",' + lines(row[1:]) for row in rows)
    write_zip(tmp_path, "kegg_undirected", text)
    d = load("kegg_undirected", tmp_path)
    x, y = whole(d)
    assert y.tolist() == [0, 1, 2, 3, 5, 6, 8, 9, 10, 11] and x.shape == (10, 27)
    assert (
        d.columns[0] == "c1" and "c26" not in d.columns and d.columns[-2:] == ("c27", "c28")
    )
    assert x[:, 25].tolist() == [1.5 * i for i in y.tolist()]
    assert "rows with a missing value left out: 2" in d.notes


def test_online_video_has_its_codecs_one_hot_after_the_numbers(tmp_path: Path) -> None:
    numbers = [f"n{i}" for i in range(17)]
    header = ["id", *numbers[:1], "codec", *numbers[1:], "o_codec", "umem", "utime"]
    codecs = ("h264", "flv", "vp8", "mpeg4")
    rows = [
        ["v", i, codecs[i % 4], *([i + 1] * 16), codecs[i // 4 % 4], 99, i]
        for i in range(32)
    ]
    for row in rows:
        row[10] = 0  # the size of b frames is always 0
    write_zip(tmp_path, "online_video", lines(header, *rows, separator="\t"))
    d = load("online_video", tmp_path)
    x, y = whole(d)
    assert x.shape == (32, ENTRIES["online_video"].shape[0]) == (32, 26)
    assert d.columns[16:21] == (
        *("codec=flv", "codec=h264", "codec=mpeg4", "codec=vp8", "codec=missing"),
    )
    assert x[:, 16:20].argmax(1).tolist() == [(1, 0, 3, 2)[int(i) % 4] for i in y]
    assert not x[:, [20, 25]].any() and (x[:, 16:].sum(1) == 2).all()


def test_wec_has_48_places_and_powers_and_the_total_as_target(tmp_path: Path) -> None:
    rows = [[*RNG.normal(size=48), 1e6 + i] for i in range(10)]
    write_zip(tmp_path, "wec_sydney", lines(*rows), inside="WECs_DataSet/")
    d = load("wec_sydney", tmp_path)
    x, y = whole(d)
    assert x.shape == (10, 48) and d.columns[0] == "X1" and d.columns[-1] == "P16"
    assert y.tolist() == [1e6 + i for i in range(10)]
    torch.testing.assert_close(
        x, torch.tensor([row[:48] for row in rows], dtype=torch.float32)
    )


def test_sarcos_predicts_the_first_torque_from_21_columns(tmp_path: Path) -> None:
    matrix = RNG.normal(size=(15, 28))
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": matrix})
    d = load("sarcos_full", tmp_path)
    order = matrix[:, 21].argsort()
    x, y = whole(d)
    assert d.columns[0] == "position1" and d.columns[-1] == "acceleration7"
    np.testing.assert_array_equal(x, matrix[order, :21].astype(np.float32))
    np.testing.assert_array_equal(y, matrix[order, 21].astype(np.float32))


ARFF = """% made by hand
@RELATION knn
@ATTRIBUTE dataset {'a b', c, 'it\\'s', never}
@attribute 'k of n' REAL
@ATTRIBUTE is.fast {TRUE,FALSE}
@ATTRIBUTE perf.mmce NUMERIC
@ATTRIBUTE perf.logloss NUMERIC
@ATTRIBUTE seconds NUMERIC
@DATA
% rows follow
'a b',1,TRUE,0.5,0,2.5
c,2,FALSE,0.5,1,2.5
'it\\'s', 3, TRUE, ?, 2, 3.5

c,4,TRUE,0.5,3,1
c,?,TRUE,0.5,4,1
?,4,TRUE,0.5,5,1
'a b',6,FALSE,0.5,6,1e1
"""


def test_an_arff_file_declares_its_levels_and_of_two_the_first_is_left_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "openml_42454.arff").write_text(ARFF)
    d = load("mlr_knn_rng", tmp_path)
    x, y = whole(d)
    assert d.columns == (
        *("k of n", "seconds", "dataset=a b", "dataset=c", "dataset=it's", "dataset=never"),
        *("dataset=missing", "is.fast=FALSE", "is.fast=missing"),
    )
    assert y.tolist() == [0, 1, 2, 3, 6]
    assert x.tolist() == [
        [1, 2.5, 1, 0, 0, 0, 0, 0, 0],
        [2, 2.5, 0, 1, 0, 0, 0, 1, 0],
        [3, 3.5, 0, 0, 1, 0, 0, 0, 0],
        [4, 1.0, 0, 1, 0, 0, 0, 0, 0],
        [6, 10.0, 1, 0, 0, 0, 0, 1, 0],
    ]
    assert "rows with a missing value left out: 2" in d.notes


def test_stock_predicts_the_last_company(tmp_path: Path) -> None:
    names = "".join(f"@attribute company{i} numeric\n" for i in range(1, 11))
    rows = lines(*([*RNG.normal(size=9), i] for i in range(10)))
    (tmp_path / "openml_1200.arff").write_text(f"@relation x\n{names}@data\n{rows}")
    d = load("stock", tmp_path)
    assert d.columns == tuple(f"company{i}" for i in range(1, 10))
    assert whole(d)[1].tolist() == list(range(10))


def test_the_catalog_prints_the_shapes_of_the_paper() -> None:
    shapes = {name: (ENTRIES[name].rows, *ENTRIES[name].shape) for name in TABLE_1}
    assert shapes == {
        "ct": (53_500, 379),
        "kegg_undirected": (64_608, 27),
        "online_video": (68_784, 26),
        "wec_sydney": (72_000, 48),
        "sarcos_full": (44_484, 21),
        "stock": (59_049, 9),
        "mlr_knn_rng": (111_753, 132),
    }


def test_a_missing_file_is_named_with_its_folder_and_the_command(tmp_path: Path) -> None:
    for name, source in SOURCES.items():
        with pytest.raises(ValueError) as error:
            load(name, tmp_path)
        for word in (source.file.name, str(tmp_path), f"fallow datasets {name} --fetch"):
            assert word in str(error.value)


DIAMONDS = """carat,cut,color,clarity,depth,table,price,x,y,z
0.23,Ideal,E,SI2,61.5,55,326,3.95,3.98,2.43
0.21,Premium,E,SI1,59.8,61,327,3.89,3.84,2.31
0.3,Very Good,J,IF,62,58,328,4,4,2.5
"""
DIAMONDS_ARFF = """@relation diamonds
@attribute carat numeric
@attribute cut {Fair,Good,'Very Good',Premium,Ideal}
@attribute color {D,E,F,G,H,I,J}
@attribute clarity {I1,SI2,SI1,VS2,VS1,VVS2,VVS1,IF}
@attribute depth numeric
@attribute table numeric
@attribute price numeric
@attribute x numeric
@attribute y numeric
@attribute z numeric
@data
"""


def test_diamonds_are_the_same_from_csv_arff_and_parquet(tmp_path: Path) -> None:
    csv = pytest.importorskip("pyarrow.csv")
    parquet = pytest.importorskip("pyarrow.parquet")
    folders = [tmp_path / name for name in ("csv", "arff", "parquet")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "diamonds.csv").write_text(DIAMONDS)
    body = DIAMONDS.partition("\n")[2].replace("Very Good", "'Very Good'")
    (folders[1] / "openml_42225.arff").write_text(DIAMONDS_ARFF + body)
    table = csv.read_csv(folders[0] / "diamonds.csv")
    parquet.write_table(table, folders[2] / "openml_42225.pq")
    first = load("diamonds", folders[0])
    x, y = whole(first)
    assert y.tolist() == [326, 327, 328]
    torch.testing.assert_close(x[2], torch.tensor([0.3, 2, 6, 7, 62, 58, 4, 4, 2.5]))
    for folder in folders[1:]:
        again = load("diamonds", folder)
        assert torch.equal(again.x, first.x) and again.columns == first.columns
        one_hot_again = load("diamonds_onehot", folder)
        assert torch.equal(one_hot_again.x, load("diamonds_onehot", folders[0]).x)
    (folders[0] / "diamonds.csv").write_text(DIAMONDS.replace("SI1", "SI3"))
    with pytest.raises(ValueError, match="row 2: 'SI3' is not a level of clarity"):
        load("diamonds", folders[0])


HOURS = """instant,dteday,season,yr,mnth,hr,holiday,weekday,workingday,weathersit,temp,atemp,hum,\
windspeed,casual,registered,cnt
1,2011-01-01,1,0,1,0,0,6,0,1,0.24,0.2879,0.81,0,3,13,16
2,2011-01-02,1,0,1,1,0,6,0,1,0.22,0.2727,0.8,0,8,32,40
3,2012-12-31,1,1,12,2,0,6,0,1,0.22,0.2727,0.8,0,5,27,32
""".replace("\\\n", "")


def test_bike_has_the_day_of_the_month_and_the_logarithm_of_the_count(
    tmp_path: Path,
) -> None:
    (tmp_path / "hour.csv").write_text(HOURS)
    d = load("bike", tmp_path)
    x, y = whole(d)
    torch.testing.assert_close(y, torch.tensor([16.0, 32.0, 40.0]).log())
    assert d.columns[:3] == ("dteday", "season", "yr") and len(d.columns) == 13
    assert x[:, 0].tolist() == [1, 31, 2]


def test_california_has_zones_as_sites_and_fills_its_missing_rooms(tmp_path: Path) -> None:
    names = "longitude,latitude,housing_median_age,total_rooms,total_bedrooms,population"
    header = f"{names},households,median_income,median_house_value,ocean_proximity\n"
    rows = "".join(
        f"-122.23,37.88,{i},880,{'' if i == 3 else 129},322,126,8.3,{i},{zone}\n"
        for i, zone in enumerate(["NEAR BAY", "<1H OCEAN", "INLAND"] * 4)
    )
    (tmp_path / "housing.csv").write_text(header + rows)
    d = load("california", tmp_path)
    assert d.site_names == ("<1H OCEAN", "INLAND", "NEAR BAY")
    assert d.columns[-1] == "total_bedrooms_missing" and d.x.shape[1] == 9
    assert d.x[:, -1].sum() + d.x_test[:, -1].sum() == 1


def test_parkinsons_has_patients_as_sites_without_the_other_score(tmp_path: Path) -> None:
    header = "subject#,age,sex,test_time,motor_UPDRS,total_UPDRS,Jitter(%)\n"
    rows = "".join(f"{i % 3 + 9},72,0,{i / 4},28.1,{i},0.006\n" for i in range(12))
    (tmp_path / "parkinsons_updrs.data").write_text(header + rows)
    d = load("parkinsons", tmp_path)
    assert d.columns == ("age", "sex", "test_time", "Jitter(%)")
    assert d.site_names == ("patient 9", "patient 10", "patient 11")


def test_a_file_that_is_damaged_or_another_one_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / SOURCES["ct"].file.name
    for text, output in (
        (lines(HEADER, *ct_rows(), [1, 2]), "row 21 has 2 cells instead of 5"),
        (lines(HEADER, [1, 2, 3, "x", 5]), "row 1 contains a text: .*'x'"),
        (lines(HEADER, [1, 2, 3, "", 5]), "no row without missing values"),
        (
            lines(["patientID", *HEADER[1:]]),
            "no column 'patientId'; did you mean 'patientID'",
        ),
        ("", "has no column 'reference'"),
    ):
        write_zip(tmp_path, "ct", text)
        with pytest.raises(ValueError, match=f"'ct': .*{output}"):
            load("ct", tmp_path)
    whole_file = archive.read_bytes()
    archive.write_bytes(whole_file[: len(whole_file) // 2])
    with pytest.raises(ValueError, match=r"is incomplete or damaged .*copy it there again"):
        load("ct", tmp_path)
    with zipfile.ZipFile(archive, "w") as other:
        other.writestr("other.csv", "x")
    with pytest.raises(
        ValueError,
        match=r"does not contain the file slice_localization_data.csv",
    ):
        load("ct", tmp_path)
    (tmp_path / "sarcos_inv.mat").write_bytes(b"no matlab file")
    with pytest.raises(ValueError, match=r"sarcos_inv.mat cannot be read as the matrix"):
        load("sarcos_full", tmp_path)


def test_one_hot_keeps_all_levels_but_the_first_of_two() -> None:
    block, names = one_hot("c", np.array([2, 0, 0]), ("a", "b", "c"))
    assert names == ("c=a", "c=b", "c=c", "c=missing")
    assert block.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert one_hot("c", np.array([1, 0]), ("a", "b"))[0].tolist() == [[1, 0], [0, 0]]
