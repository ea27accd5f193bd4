"""Unusual inputs work or raise an error of one sentence."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, assert_type, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import nn

import fallow as fl
from fallow.api.fingerprints import digest_of_rows
from fallow.core.kinds import takes_numbers
from fallow.data import Dataset
from fallow.settings.variants import check_distinct

Arrays = dict[str, np.ndarray]
HEAD = nn.Sequential(nn.Linear(4, 3))


def entropy(arrays: Arrays, **more: Any) -> list[int]:
    form = {"pool": arrays["pool"], "outputs": arrays["p"], "n": 5}
    arguments = {**form, **more}
    pool = arguments.pop("pool")
    rows: list[int] = fl.select(pool, fl.Entropy(), **arguments).tolist()
    return rows


# -- examples --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.tolist(),
        torch.from_numpy,
        lambda x: pd.DataFrame(x, index=range(100, 100 + len(x))),
        lambda x: x.astype(np.float64),
        lambda x: np.asfortranarray(x),
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4"),
        lambda x: torch.from_numpy(x).requires_grad_(),
        lambda x: x.astype(object),
    ],
    ids=[
        "list",
        "tensor",
        "frame",
        "float64",
        "fortran",
        "steps",
        "bytes",
        "graph",
        "object",
    ],
)
def test_rows_come_in_many_forms(arrays: Arrays, form: Any) -> None:
    labeled = (form(arrays["x"]), arrays["y"])
    selection = fl.select(form(arrays["pool"]), fl.CoreSet(), labeled=labeled, n=4)
    plain = (arrays["x"], arrays["y"])
    assert (
        selection.tolist()
        == fl.select(arrays["pool"], fl.CoreSet(), labeled=plain, n=4).tolist()
    )
    assert selection.dtype == np.int64


def test_read_only_memory_is_read_without_a_copy_and_a_warning(arrays: Arrays) -> None:
    arrays["pool"].flags.writeable = False
    assert len(entropy(arrays)) == 5


def test_rows_of_whole_numbers_and_pictures_work() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (9, 1, 4, 4), dtype=np.uint8)
    assert len(fl.select(pictures, "core-set", n=3)) == 3


class Spy(fl.Strategy):
    """Tells where the pool that it sees lies in memory."""

    contract = fl.Contract(title="Spy")

    def select(self, view: Any, n: int) -> fl.SelectedExamples:
        where = view.rows().data_ptr()
        return fl.SelectedExamples(torch.arange(n), score=torch.full((n,), where).double())


@pytest.mark.parametrize("form", [lambda x: x, torch.from_numpy], ids=["numpy", "torch"])
def test_the_pool_is_not_copied(arrays: Arrays, form: Any) -> None:
    pool = form(arrays["pool"])
    labeled = (arrays["x"], arrays["y"])
    selection = fl.select(pool, Spy(), labeled=labeled, n=1, details=True)
    assert selection.score[0] == float(arrays["pool"].ctypes.data)


def test_a_selection_changes_nothing_that_it_was_given(arrays: Arrays) -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(), nn.Linear(6, 3)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    kept = {name: value.copy() for name, value in arrays.items()}
    random = torch.get_rng_state()
    fl.select(
        arrays["pool"], fl.BALD(), labeled=(arrays["x"], arrays["y"]), model=module, n=3
    )
    assert all(
        torch.equal(before[name], value) for name, value in module.state_dict().items()
    )
    assert all(layer.training for layer in module)
    assert all(np.array_equal(kept[name], value) for name, value in arrays.items())
    assert torch.equal(random, torch.get_rng_state())


# -- number of examples ----------------------------------------------------------------


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (30, 30), (np.int64(2), 2)])
def test_any_number_of_rows_can_be_asked_for(arrays: Arrays, n: Any, expected: int) -> None:
    selected = entropy(arrays, n=n)
    assert len(set(selected)) == len(selected) == expected


def test_more_than_the_pool_holds_is_selected_with_a_warning(arrays: Arrays) -> None:
    with pytest.warns(
        UserWarning, match="n=999 exceeds the 30 unlabeled examples of site-0"
    ):
        assert len(entropy(arrays, n=999)) == 30
    sites = {name: fl.Site(arrays["pool"], outputs=arrays["p"]) for name in "ab"}
    with pytest.warns(
        UserWarning, match="n=31 exceeds the 30 unlabeled examples of b; 30 are"
    ):
        chosen = fl.select(sites, fl.Entropy(), n={"a": 1, "b": 31})
    assert {name: len(rows) for name, rows in chosen.items()} == {"a": 1, "b": 30}


def test_a_budget_of_all_sites_is_compared_with_all_their_pools(arrays: Arrays) -> None:
    sites = {"a": fl.Site(arrays["pool"][:2]), "b": fl.Site(arrays["pool"][2:])}
    chosen = fl.select(sites, fl.Pivotal(), n=4)  # site a has two
    assert sum(map(len, chosen.values())) == 8
    with pytest.warns(UserWarning, match="n=62 exceeds the 30 unlabeled examples of all"):
        fl.select(sites, fl.Pivotal(), n=31)


@pytest.mark.parametrize("n", [-1, 2.5, "3", True])
def test_a_number_that_is_none_is_refused(arrays: Arrays, n: Any) -> None:
    with pytest.raises(ValueError, match="give a whole number of examples, 0 or more"):
        entropy(arrays, n=n)


@pytest.mark.parametrize("pool", [[], np.empty((0, 4)), torch.empty(0, 4)])
def test_an_empty_pool_gives_no_picks(arrays: Arrays, pool: Any) -> None:
    labeled = (arrays["x"], arrays["y"])
    assert fl.select(pool, fl.Random(), labeled=labeled, n=0).tolist() == []
    with pytest.warns(UserWarning, match="n=3 exceeds the 0 unlabeled examples"):
        assert fl.select(pool, fl.Random(), labeled=labeled, n=3).tolist() == []


def test_each_site_has_its_own_number(arrays: Arrays) -> None:
    sites = {name: fl.Site(arrays["pool"], outputs=arrays["p"]) for name in "ab"}
    outcome = fl.select(sites, fl.Entropy(), n={"a": 2})
    assert {name: len(rows) for name, rows in outcome.items()} == {"a": 2, "b": 0}
    with pytest.raises(ValueError, match="n contains no site 'c'"):
        fl.select(sites, fl.Entropy(), n={"c": 2})


def test_sites_may_be_called_by_numbers(arrays: Arrays) -> None:
    sites = {name: fl.Site(arrays["pool"], outputs=arrays["p"]) for name in (1, 2)}
    selection = fl.select(sites, fl.Entropy(), n={1: 2, 2: 3})
    assert {name: len(rows) for name, rows in selection.items()} == {1: 2, 2: 3}


def test_labels_that_do_not_begin_at_zero_are_the_outputs_in_order(arrays: Arrays) -> None:
    both = {"local": arrays["p"], "global": arrays["q"]}
    arguments: dict[str, Any] = {"outputs": both, "n": 6}
    plain = fl.select(
        arrays["pool"], fl.KSAS(), labeled=(arrays["x"], arrays["y"]), **arguments
    )
    selection = fl.select(
        arrays["pool"], fl.KSAS(), labeled=(arrays["x"], arrays["y"] + 1), **arguments
    )
    assert selection.tolist() == plain.tolist()


# -- outputs ---------------------------------------------------------------------------


def margins_of(p: np.ndarray) -> np.ndarray:
    two = np.sort(p, axis=1)[:, -2:]
    gaps: np.ndarray = two[:, 1] - two[:, 0]
    return gaps


@pytest.mark.parametrize(
    "form",
    [
        lambda p: p.round(2),
        lambda p: p.round(3),
        lambda p: p.astype(np.float16),
        lambda p: p.astype(np.longdouble),
        lambda p: torch.from_numpy(p).to(torch.bfloat16),
        lambda p: torch.from_numpy(p).half(),
        lambda p: p - 1e-9 * (p == p.min(1, keepdims=True)),
    ],
    ids=["2 digits", "3 digits", "float16", "longdouble", "bfloat16", "half", "below 0"],
)
@pytest.mark.parametrize("by_site", [False, True])
def test_rounded_probabilities_are_probabilities(form: Any, by_site: bool) -> None:
    rng = np.random.default_rng(7)
    rounded = form(rng.dirichlet(np.ones(4), size=200))
    plain = rounded
    if not isinstance(plain, np.ndarray):
        plain = plain.double().numpy()
    pool = rng.normal(size=(200, 2))
    if by_site:
        sites = {"site-0": fl.Site(pool, outputs=rounded)}
        rows = fl.select(sites, "margin", n=10)["site-0"]
    else:
        rows = fl.select(pool, "margin", outputs=rounded, n=10)
    shares = plain / plain.sum(1, keepdims=True)
    chosen = np.sort(margins_of(shares)[rows].astype(float))
    assert chosen == pytest.approx(np.sort(margins_of(shares))[:10].astype(float), abs=1e-6)


def test_outputs_that_may_be_either_are_refused_until_they_are_declared() -> None:
    pool = [[0.0], [1.0], [2.0]]
    positive = [[2.0, 1.0], [3.0, 2.9], [9.0, 1.0]]
    with pytest.raises(ValueError, match="row 0 sums to 3, not 1; set"):
        fl.select(pool, "margin", outputs=positive, n=1)
    logits = fl.select(pool, "margin", outputs=positive, n=1, outputs_are="logits")
    assert logits.tolist() == [1]
    counts = fl.select(pool, "margin", outputs=positive, n=1, outputs_are="probabilities")
    assert counts.tolist() == [1]
    mixed = [[0.5, 0.5], [0.1, 0.9], [-3.0, 1.0]]
    with pytest.raises(ValueError, match="2 of 3 rows are probabilities and the others"):
        fl.select(pool, "margin", outputs=mixed, n=1)
    with pytest.raises(ValueError, match="row 2 has a negative value or sums to 0"):
        fl.select(pool, "margin", outputs=mixed, n=1, outputs_are="probabilities")
    unknown: Any = "proba"
    with pytest.raises(
        ValueError, match="outputs_are is 'proba'; it must be 'probabilities'"
    ):
        fl.select(pool, "margin", outputs=mixed, n=1, outputs_are=unknown)
    with pytest.raises(ValueError, match=r"give outputs_are in each fl\.Site"):
        fl.select({"a": fl.Site(pool)}, "margin", n=1, outputs_are="logits")
    site = fl.Site(pool, outputs=positive, outputs_are="logits")
    assert fl.select({"a": site}, "margin", n=1)["a"].tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_are_numbers_everywhere(arrays: Arrays, dtype: torch.dtype) -> None:
    def short(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(dtype)

    labeled = (short(arrays["x"]), short(arrays["y"]))
    logits = short(np.log(arrays["p"]) - 1)
    rows = fl.select(
        short(arrays["pool"]),
        "badge",
        labeled=labeled,
        outputs=logits,
        features=(short(arrays["pool"]), short(arrays["x"])),
        n=3,
    )
    assert len(rows) == 3
    data = fl.from_arrays(short(arrays["pool"]), arrays["p"].argmax(1))
    assert data.x.dtype == torch.float32


# -- labels ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda y: y.tolist(),
        lambda y: y.astype(np.int32),
        lambda y: y.astype(np.float64),
        lambda y: pd.Series(y, index=np.random.default_rng(0).permutation(len(y))),
        lambda y: y[:, None],
        lambda y: np.array(["ant", "bee", "cow"])[y],
        lambda y: ["ant" if v == 0 else "bee" if v == 1 else "cow" for v in y],
        lambda y: pd.Series(np.array(["ant", "bee", "cow"])[y]).astype("category"),
    ],
    ids=[
        "list",
        "int32",
        "float",
        "series",
        "column",
        "texts",
        "list of texts",
        "category",
    ],
)
def test_labels_come_in_many_forms(arrays: Arrays, form: Any) -> None:
    both = {"local": arrays["p"], "global": arrays["q"]}
    arguments: dict[str, Any] = {"outputs": both, "n": 6}
    plain = fl.select(
        arrays["pool"], fl.KSAS(), labeled=(arrays["x"], arrays["y"]), **arguments
    )
    result = fl.select(
        arrays["pool"], fl.KSAS(), labeled=(arrays["x"], form(arrays["y"])), **arguments
    )
    assert result.tolist() == plain.tolist()


def test_one_class_and_one_label_are_enough(arrays: Arrays) -> None:
    labeled = (arrays["x"][:1], [2])
    both = {"local": arrays["p"], "global": arrays["q"]}
    assert (
        len(fl.select(arrays["pool"], fl.KSAS(), labeled=labeled, outputs=both, n=4)) == 4
    )


def test_classes_that_do_not_occur_are_named(arrays: Arrays) -> None:
    labels = np.where(arrays["y"] == 0, "ant", "cow")
    arguments: dict[str, Any] = {"outputs": arrays["p"], "n": 3}
    with pytest.raises(
        ValueError, match="3 outputs and the labels 2 classes; give classes="
    ):
        fl.select(arrays["pool"], fl.Entropy(), labeled=(arrays["x"], labels), **arguments)
    values = fl.select(
        arrays["pool"],
        fl.Entropy(),
        labeled=(arrays["x"], labels),
        classes=["ant", "bee", "cow"],
        **arguments,
    )
    assert len(values) == 3


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1, np.nan], "labels of site site-0 contain nan, which is not a class"),
        ([0, 1, 7], "contain 7, which is not a class; there are 0, 1, 2"),
        ([0, 1], "labels of site site-0 are 2 for 3 labeled rows"),
        ([[0, 1], [1, 0], [0, 0]], "has shape (3, 2); give one value per row"),
    ],
)
def test_a_label_that_is_none_is_named(arrays: Arrays, labels: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        entropy(arrays, labeled=(arrays["x"][:3], labels))
    assert words in str(error.value)


# -- refused values --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"pool": [1.0, 2.0]},
            "the pool of site site-0 has shape (2,); give rows of shape",
        ),
        ({"pool": [["a"], ["b"]]}, "the pool of site site-0 contains"),
        ({"pool": [[1.0], [np.nan]]}, "1 of 2 rows have a feature that is NaN or infinite"),
        (
            {"pool": None},
            "the pool is None; give examples, or {'a': fl.Site(...), 'b': fl.Site(...)}",
        ),
        (
            {"outputs": [[0.5, 0.5]]},
            "outputs of site site-0 (pool rows) are 1 for 30 pool rows",
        ),
        ({"outputs": None}, "give outputs={'local': p} or model=module"),
        ({"model": "mlp"}, "the model of site site-0 is str; give a torch.nn.Module"),
        ({"model": nn.ReLU()}, "ReLU calls no torch.nn.Linear"),
        ({"labeled": [[1.0]]}, "labeled of site site-0 must be a pair (x, y)"),
        (
            {"labeled": ([[1.0]], [0])},
            "labeled rows have shape (1,) and those of the pool (4,)",
        ),
        (
            {"pool": {"a": 3}, "outputs": None},
            "site a is int; give fl.Site(",
        ),
        (
            {"pool": {}, "outputs": None},
            "there are no sites; give at least one",
        ),
        ({"pool": {"a": None}}, "for a federation, give outputs in each fl.Site"),
        ({"pool": 3}, "the pool of site site-0 is 3; give rows of shape (n, features)"),
        ({"pool": csr_matrix(np.eye(30))}, "is sparse; give pool.toarray()"),
        (
            {"outputs": np.full((30, 3), np.nan)},
            "outputs of site site-0 (pool rows): no row is finite",
        ),
        ({"model": {"lokal": HEAD}}, "a model called 'lokal'; did you mean 'local'?"),
        ({"seed": "a"}, "seed is 'a'; give a whole number"),
        ({"seed": None}, "seed is None; give a whole number"),
        ({"cycle": 1.5}, "cycle is 1.5; give a whole number"),
        ({"classes": "abc"}, "classes is 'abc'; give a number of classes, or a list"),
        ({"classes": 3.0}, "classes is 3.0; give a number of classes, or a list"),
        ({"classes": -1}, "classes is -1; give a number of classes, or a list"),
        ({"classes": ["a", "b", "a"]}, "classes contains 'a' twice"),
        ({"site": ""}, "a site needs a name"),
        (
            {"labeled": ([[1.0] * 4] * 2, [0, None])},
            "labels of site site-0 contain None, which is not a class; omit examples without a label",
        ),
        (
            {"pool": [fl.Site([[1.0]])], "outputs": None},
            "the pool is fl.Site without a name; give {'a': fl.Site(...), 'b': fl.Site(...)}",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(
    arrays: Arrays, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError) as error:
        entropy(arrays, **changed)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("strategy", ["entrpy", "fl.Entropy", 3, fl.FedAvg, fl.FedAvg()])
def test_a_strategy_that_is_none_is_refused(arrays: Arrays, strategy: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"not one of the strategies|not a query strategy|is not a strategy|selects no examples",
    ):
        fl.select(arrays["pool"], strategy, n=2)


@pytest.mark.parametrize("name", ["features", "validation", "hidden"])
def test_nothing_is_given_beside_sites_and_then_left_aside(
    arrays: Arrays, name: str
) -> None:
    beside: dict[str, Any] = {name: arrays["pool"]}
    with pytest.raises(ValueError, match=f"for a federation, give {name} in each fl.Site"):
        fl.select({"a": fl.Site(arrays["pool"])}, fl.Random(), n=1, **beside)


def test_a_site_may_be_called_by_a_number(arrays: Arrays) -> None:
    assert entropy(arrays, site=3) == entropy(arrays, site="3")


def test_models_of_two_architectures_are_refused(arrays: Arrays) -> None:
    sites = {
        "a": fl.Site(arrays["pool"], model=nn.Sequential(nn.Linear(4, 3))),
        "b": fl.Site(arrays["pool"], model=nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 3))),
    }
    with pytest.raises(
        ValueError, match="different architectures; give all sites the same"
    ):
        fl.select(sites, fl.Entropy(), n=1)


# -- data sets -------------------------------------------------------------------------


def test_data_comes_in_many_forms() -> None:
    x = [[float(i), 1.0] for i in range(20)]
    y = [i % 2 for i in range(20)]
    plain = fl.from_arrays(x, y)
    frame = pd.DataFrame(x, index=reversed(range(20)))
    labels = pd.Series(y, index=np.random.default_rng(0).permutation(20))
    for value in (
        (np.array(x), np.array(y, dtype=np.uint8)),
        (torch.tensor(x), torch.tensor(y)),
        (frame, labels),
        (np.array(x, dtype=object), np.array(y)[:, None]),
    ):
        arrays = fl.from_arrays(*value)
        assert torch.equal(arrays.x, plain.x)
        assert torch.equal(arrays.y, plain.y)


def test_sites_are_numbers_or_texts_or_a_column() -> None:
    x = [[float(i)] for i in range(20)]
    y = [i % 2 for i in range(20)]
    names = pd.Series(["north", "south"] * 10, index=reversed(range(20)))
    simulation = fl.Federation(fl.from_arrays(x, y, sites=names))
    assert set(simulation.sizes()) == {"north", "south"}
    assert simulation.sites == 0
    numbered = fl.Federation(fl.from_arrays(x, y, sites=[1.0, 2.0] * 10))
    assert set(numbered.sizes()) == {"1", "2"}
    with pytest.raises(ValueError, match="sites: 1 examples have none; fill them in"):
        fl.from_arrays(x, y, sites=[None, *["a"] * 19])


@pytest.mark.filterwarnings("ignore:arrays. 5 of 20 labels are NaN")
@pytest.mark.parametrize(
    ("labels", "classes", "unlabeled"),
    [
        ([True, False] * 10, ("False", "True"), 0),
        (["a", None] * 5 + ["b", "a"] * 5, ("a", "b"), 5),
        (["a", np.nan] * 5 + ["b", "a"] * 5, ("a", "b"), 5),
        ([1, 0, None, 1] * 5, ("0", "1"), 5),
        ([1, 0, np.nan, 1] * 5, ("0", "1"), 5),
        (pd.array([1, 0, None, 1] * 5, dtype="Int64"), ("0", "1"), 5),
    ],
)
def test_a_row_without_a_label_is_unlabeled(
    labels: Any, classes: tuple[str, ...], unlabeled: int
) -> None:
    arrays = fl.from_arrays([[float(i)] for i in range(20)], labels)
    assert arrays.classes == classes
    assert int((~arrays.is_labeled).sum()) == unlabeled


def test_one_class_alone_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        ValueError,
        match="contain only the class 'a'; label examples of at least two classes",
    ):
        fl.from_arrays([[0.0], [1.0]], ["a", "a"])


def frame() -> pd.DataFrame:
    n = 24
    return pd.DataFrame(
        {
            "age": np.arange(n, dtype=float),
            "kind": ["cat", "dog", "cow"] * 8,
            "is_old": [i > 10 for i in range(n)],
            "clinic": ["east", "west"] * 12,
            "name": [f"row {i}" for i in range(n)],
            "sick": ["no", "yes", "yes"] * 8,
        },
        index=np.random.default_rng(3).permutation(n),
    )


def test_a_frame_is_read_by_its_columns() -> None:
    values = fl.from_frame(frame(), label="sick", site="clinic", id="name")
    assert values.columns == ("age", "kind=cat", "kind=cow", "kind=dog", "is_old")
    assert values.site_names == ("east", "west")
    assert values.ids is not None and values.ids[0].startswith("row ")
    first = values.x[0].tolist()
    assert sum(first[1:4]) == 1.0


def test_a_frame_and_its_file_are_the_same_data_set(tmp_path: Any) -> None:
    from fallow.data import open_dataset

    path = tmp_path / "frame.csv"
    frame().drop(columns=["name", "is_old"]).to_csv(path, index=False)
    read = open_dataset(path, label="sick", site="clinic")
    values = fl.from_frame(
        frame().drop(columns=["name", "is_old"]), label="sick", site="clinic", name="frame"
    )
    assert torch.equal(read.x, values.x)
    assert torch.equal(read.y, values.y)
    assert read.columns == values.columns


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"label": "sickk"}, "frame has no column 'sickk'; did you mean 'sick'?"),
        ({}, {"site": "sick"}, "'sick' is both label and site; give two columns"),
        ({"age": [np.inf] + [1.0] * 23}, {}, "column 'age' has 1 infinite values"),
        ({"age": ["old"] + [1.0] * 23}, {}, "column 'age', row 1: 'old' is not a number"),
        (
            {"age": [1.0] * 24},
            {"columns": ["ages"]},
            "no column 'ages'; did you mean 'age'",
        ),
        (
            {"clinic": [None] + ["east"] * 23},
            {"site": "clinic"},
            "1 rows have no site in column",
        ),
    ],
)
def test_a_frame_that_cannot_be_read_is_said_in_one_sentence(
    change: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    table = frame().assign(**change)
    with pytest.raises(ValueError) as error:
        fl.from_frame(table, **{"label": "sick", "id": "name", **options})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (frame().to_dict("list"), {}, "frame is a dict, not a DataFrame; make one"),
        (frame(), {"test": [1]}, "the test frame of frame is a list, not a DataFrame"),
        (frame(), {"label": ["sick"]}, "the labels are ['sick']; name 2 to 32"),
        (frame().iloc[:0], {}, "frame has 0 rows and "),
    ],
)
def test_what_is_no_frame_and_no_column_is_said_in_one_sentence(
    table: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError) as error:
        fl.from_frame(table, **{"label": "sick", **options})
    assert words in str(error.value)


def test_a_path_in_the_place_of_a_name_is_told_where_to_go(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    frame().to_csv(table, index=False)
    for read in (fl.load, fl.Federation):
        with pytest.raises(
            ValueError, match=r"mine\.csv is a table; set its column of labels"
        ):
            read(str(table))
    assert (
        fl.load(table, label="sick").classes == fl.from_frame(frame(), label="sick").classes
    )


def test_texts_in_the_place_of_numbers_are_told_where_to_go() -> None:
    with pytest.raises(ValueError, match=r"features are <U9 values; .*fl\.texts_to_rows"):
        fl.from_arrays(["good day", "bad night"] * 5, [0, 1] * 5)


@pytest.mark.parametrize("seed", [-1, 1.5, "one", True])
def test_a_seed_that_is_none_is_refused_before_anything_runs(seed: Any) -> None:
    with pytest.raises(ValueError, match="give a whole number, 0 or more"):
        fl.run(
            "iris",
            "random",
            seed=seed,
            cycles=0,
            training="fedavg",
            rounds=1,
            progress=False,
        )


# -- federations and settings ----------------------------------------------------------


def test_a_world_may_be_made_from_a_name_or_a_path_and_then_holds_the_data_set(
    tmp_path: Path,
) -> None:
    x = np.arange(20.0).reshape(10, 2)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(10) % 2)
    # these lines are also type-checked
    named = fl.Federation("iris")
    opened = fl.Federation(tmp_path / "mine.npz", fl.IID(), sites=2)
    assert_type(named.dataset, Dataset)
    assert_type(opened.sites, int)
    assert (named.dataset.name, opened.dataset.name) == ("iris", "mine")
    taken = get_type_hints(fl.Federation.__init__)["dataset"]
    assert set(get_args(taken)) == {Dataset, str, Path}
    fewer = replace(named, sites=3)
    assert (fewer.dataset, fewer.sites) == (named.dataset, 3)


def test_a_run_reads_a_path_with_the_options_of_loading(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text("a;y\n" + "".join(f"{i % 3},5;{'xy'[i % 2]}\n" for i in range(8)))
    run = fl.run(path, label="y", decimal=",", sites=1, cycles=0)  # 6 training examples
    assert run.config.sites == 1
    with pytest.raises(ValueError, match="has no column 'z'"):
        fl.run(path, label="z", sites=1)


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ((3,), "a federation is created from a dataset, not from int"),
        (("digitz",), "did you mean 'digits'"),
        (
            ("digits", "dirichlet:alfa=1"),
            "dirichlet has no setting 'alfa'; did you mean 'alpha'?",
        ),
        (("digits", 0.1), "partition: 0.1 is no"),
        (("digits", fl.IID(), "ten"), "sites is 'ten'; give a whole number of sites"),
        (("digits", fl.IID(), 2.0), "sites is 2.0; give a whole number of sites"),
    ],
)
def test_a_world_that_cannot_be_is_refused(sites: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        fl.Federation(*sites)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cycels": 1}, "cycels is not a setting; did you mean 'cycles'?"),
        ({"cycles": "one"}, "cycles is 'one'; it must be a whole number"),
        ({"cycles": -1}, "cycles is -1; it must be at least 0"),
        ({"lr": "0.1"}, "optimizer.lr is '0.1'; it must be a number above 0 or none"),
        (
            {"batch_size": "8"},
            "batch_size is '8'; it must be a whole number, at least 1, or none",
        ),
        ({"epochs": "2"}, "epochs is '2'; it must be a whole number"),
        ({"momentum": "0.9"}, "momentum is '0.9'; it must be a number"),
        ({"rounds": "2"}, "rounds is '2'; it must be a whole number"),
        ({"rows": "50"}, "rows is '50'; it must be a whole number, at least 1, or none"),
        ({"validation": "0.1"}, "validation is '0.1'; it must be a number"),
        ({"resplit": "true"}, "resplit is 'true'; it must be true or false"),
        ({"privacy": {"epsilon": "1"}}, "privacy.epsilon is '1'; it must be a number"),
        ({"foo": 3}, "foo is not a setting; 'fallow settings' and docs/settings.md list"),
        ({"budget": 0}, "budget is 0"),
        ({"budget": 0.9}, "more than the unlabeled pool"),
        ({"strategy": "entrpy"}, "did you mean 'entropy'?"),
        ({"strategy": nn.Linear(2, 2)}, "strategy is a module with weights"),
        ({"model": nn.Linear(2, 2)}, "Linear has 2 outputs, and needs 3 outputs"),
        ({"model": fl.LeNet()}, "LeNet needs examples of shape"),
        ({"training": fl.Entropy()}, "is a query strategy, not a training algorithm"),
        ({"strategy": fl.BAIT()}, "bait is for regression"),
        (
            {"training_config": {"bacth_size": 3}},
            "training_config.bacth_size is not a setting; did you mean 'batch_size'?",
        ),
        (
            {"config": "dmo"},
            "'dmo' is not an experiment configuration; did you mean 'demo'?",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_trained(
    simulation: fl.Federation, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError) as error:
        fl.run(simulation, **{"training": "fedavg", **settings})
    assert words in str(error.value)


@pytest.mark.parametrize(
    "strategies",
    [
        ["random", "random"],
        ["random", fl.Random()],
        [fl.Random(), fl.Random],
        ["typical_unsure", "typical-unsure"],
        ["margin", "Margin"],
        ["margin:model=global", fl.Random(), "margin:model=global"],
    ],
)
def test_a_strategy_that_is_listed_twice_is_refused(
    simulation: fl.Federation, strategies: Any
) -> None:
    with pytest.raises(ValueError, match="are the same; list each strategy once"):
        fl.compare(simulation, strategies, seeds=1)
    names = [one if isinstance(one, str) else "random" for one in strategies]
    config = {"name": "mine", "strategies": names}
    with pytest.raises(ValueError, match="are the same; list each strategy once"):
        fl.compare(simulation, config=config, seeds=1)


def test_variants_of_a_strategy_are_no_duplicates() -> None:
    check_distinct(["margin", "margin@rounds=2", "margin:model=global", "own:Margin"])


def list_numbers() -> list[tuple[type, str]]:
    """List the numeric fields of all classes of settings."""
    classes = [fl.TrainingConfig, fl.TrainingStage, fl.Optimizer, fl.Privacy]
    for space in (fl.strategies, fl.training, fl.partitions, fl.models, fl.encoders):
        classes += [getattr(space, name) for name in dir(space)]
    numbers = []
    for cls in filter(is_dataclass, classes):
        hints = get_type_hints(cls)
        for part in fields(cls):
            if part.init and takes_numbers(hints[part.name]):
                numbers.append((cls, part.name))
    return numbers


@pytest.mark.parametrize(
    ("cls", "name"),
    list_numbers(),
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_text_in_the_place_of_a_number_is_refused(cls: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{name} is '0\.1'; it must be"):
        cls(**{name: "0.1"})


def test_numbers_of_numpy_are_numbers(
    simulation: fl.Federation, quick: dict[str, Any]
) -> None:
    settings = {
        **quick,
        "cycles": np.int64(1),
        "budget": np.float32(0.125),
        "rounds": np.int8(1),
    }
    seed: Any = np.int64(1)
    run = fl.run(simulation, seed=seed, **settings)
    assert run.config.cycles == 1
    assert run.seed == 1


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(ValueError, match="there is nothing to run; give a federation"):
        fl.run()
    with pytest.raises(
        ValueError, match=r"the first argument must be a fl.Federation.*, not int"
    ):
        fl.run(3)  # type: ignore[arg-type]  # that is what is refused


def test_a_table_as_it_is_names_what_makes_a_world_of_it() -> None:
    table = pd.DataFrame({"age": [1, 2], "ill": ["no", "yes"]})
    with pytest.raises(ValueError, match=r"fl\.from_frame\(table, label="):
        fl.run(table)
    with pytest.raises(ValueError, match=r"fl\.from_frame\(table, label="):
        fl.compare(strategies=["random"], data=table, label="ill")


def test_sites_that_the_data_names_need_no_number() -> None:
    data = fl.from_arrays(
        np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1], sites=["a", "b", "c"] * 2
    )
    asked = fl.Federation(data, fl.Natural())
    assert asked.sizes() == fl.Federation(data).sizes()
    assert set(asked.sizes()) == {"a", "b", "c"}


def test_a_file_as_the_folder_of_results_is_refused(
    simulation: fl.Federation, tmp_path: Path
) -> None:
    file = tmp_path / "table.csv"
    file.touch()
    with pytest.raises(
        ValueError, match=r"table.csv', which is a file; give the path of a f"
    ):
        fl.run(simulation, "random", out=file)
    with pytest.raises(ValueError, match="which is a file"):
        fl.compare(simulation, ["random"], out=file)


# -- tables and studies --------------------------------------------------------------------


def test_columns_of_a_frame_may_be_named_by_numbers() -> None:
    frame = pd.DataFrame({0: np.arange(12) * 1.5, 1: ["no", "yes"] * 6})
    d = fl.from_frame(frame, label=1)  # type: ignore[arg-type]
    assert d.columns == ("0",)


def test_two_columns_of_a_frame_with_one_name_are_refused() -> None:
    frame = pd.DataFrame(np.eye(4, 3), columns=["age", "age", "sick"])
    with pytest.raises(ValueError, match="has more than one column 'age'; rename one"):
        fl.from_frame(frame, label="sick")


def test_rows_of_different_lengths_are_no_array() -> None:
    with pytest.raises(ValueError, match="x is not an array"):
        fl.from_arrays([[1.0], [1.0, 2.0]], ["no", "yes"])


def test_a_single_strategy_may_be_a_mapping() -> None:
    federation = fl.Federation("digits", "iid", sites=2)
    strategy = {"name": "entropy", "model": "global"}
    quick: Any = {"encoder": "identity", "seeds": 1, "cycles": 0, "progress": False}
    study = fl.compare(federation, strategy, **quick)
    assert study.study_records.strategies == ("entropy:model=global",)
    with pytest.raises(ValueError, match="seed is 'last'"):
        study.run("entropy", seed="last")  # type: ignore[arg-type]


def test_other_test_sites_or_columns_are_other_data() -> None:
    x = np.arange(12.0)[:, None]
    y = ["no", "yes"] * 6
    usual: dict[str, Any] = {
        "x_test": x + 99,
        "y_test": y,
        "sites": ["a", "b"] * 6,
        "columns": ["age"],
    }
    changes: list[dict[str, Any]] = [{}, {"columns": ["dose"]}, {"sites_test": ["a"] * 12}]
    digests = set()
    for change in changes:
        digests.add(digest_of_rows(fl.from_arrays(x, y, **{**usual, **change})))
    assert len(digests) == 3
