"""Typical first calls of a new user: data, a model, a strategy, a comparison, exports."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import fallow as fl
import fallow._names as public

N_IMAGES = 500
MOST_FREQUENT = 0.11  # accuracy of predicting the most frequent digit
FEW_FILTERS = fl.Convolution(filters=32)


@pytest.fixture(scope="module")
def images() -> npt.NDArray[np.uint8]:
    """Return digits as photographs: (n, 8, 8, 3), channels last."""
    digits = fl.load("digits")
    gray = (digits.x[:N_IMAGES, 0].numpy() * 255).clip(0, 255).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=3)


@pytest.fixture(scope="module")
def labels() -> npt.NDArray[np.int64]:
    y: npt.NDArray[np.int64] = fl.load("digits").y[:N_IMAGES].numpy()
    return y


@pytest.fixture(scope="module")
def folder(
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int64],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Write the same images as PNG files, in a folder per class."""
    folder = tmp_path_factory.mktemp("images") / "digits"
    for row, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / str(label)
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path / f"{row:03}.png")
    return folder


def find_accuracy(run: fl.Run) -> float:
    return float(run.records["accuracy"].iloc[-1])


# -- data ------------------------------------------------------------------------------


@pytest.mark.long
def test_folders_of_png_files(folder: Path) -> None:
    federation = fl.Federation(folder, fl.Dirichlet(alpha=0.3), sites=5)
    assert len(federation.sizes()) == 5
    run = fl.run(federation, "margin", budget=10, cycles=1, encoder=FEW_FILTERS)
    assert find_accuracy(run) > 5 * MOST_FREQUENT


@pytest.mark.long
def test_arrays_with_their_channels_last_are_what_they_are_with_channels_first(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]
) -> None:
    with pytest.warns(UserWarning, match=r"read as 3 channels of 8 x 8 .*channels last"):
        last = fl.from_arrays(images, labels)
    first = fl.from_arrays(np.moveaxis(images, 3, 1), labels)
    assert torch.equal(last.x, first.x)
    runs = [
        fl.run(fl.Federation(data, sites=5), "margin", cycles=0, encoder=FEW_FILTERS)
        for data in (last, first)
    ]
    assert find_accuracy(runs[0]) == find_accuracy(runs[1]) > 5 * MOST_FREQUENT


def test_labels_of_nan_are_counted(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    y = np.arange(40) % 2.0
    y[:7] = np.nan
    sentence = "7 of 40 labels are NaN; these examples are treated as unlabeled"
    with pytest.warns(UserWarning, match=f"arrays: {sentence}"):
        data = fl.from_arrays(x, y)
    assert "2 classes, 7 unlabeled, " in repr(data)
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(label=y)
    with pytest.warns(UserWarning, match=sentence):
        fl.from_frame(table, label="label")
    confirmed = [None if np.isnan(value) else value for value in y]
    assert fl.from_arrays(x, confirmed).classes == ("0", "1")


def test_a_long_tail_needs_no_settings() -> None:
    federation = fl.Federation("digits", fl.LongTail(), sites=5)
    rows = np.concatenate(list(federation.rows().values()))
    counts = np.bincount(federation.dataset.y[rows])
    assert counts.tolist() == sorted(counts, reverse=True)
    assert counts[0] // counts[9] == 20


# -- a custom model and strategy -------------------------------------------------------


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        self.classifier = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(x))
        return logits


def prefer_dark(view: Any, n: int) -> npt.NDArray[np.int64]:
    """Select the darkest examples."""
    ink = view.rows().flatten(1).sum(1).numpy()
    darkest: npt.NDArray[np.int64] = np.argsort(ink)[:n]
    return darkest


@pytest.mark.long
def test_an_own_network_trains() -> None:
    federation = fl.Federation("digits", sites=3)
    network = Network()
    before = [weight.clone() for weight in network.parameters()]
    run = fl.run(federation, "badge", model=network, training="fedavg", rounds=6, cycles=1)
    assert find_accuracy(run) > 2 * MOST_FREQUENT
    assert isinstance(run.model, Network)
    for weight, unchanged in zip(network.parameters(), before, strict=True):
        assert torch.equal(weight, unchanged)


@pytest.mark.long
def test_an_own_strategy_selects() -> None:
    federation = fl.Federation("digits", sites=3)
    run = fl.run(federation, prefer_dark, budget=5, cycles=2, encoder=FEW_FILTERS)
    assert len(run.labels) == len(run.labels.drop_duplicates(["site", "row"]))
    bought = run.labels[run.labels["cycle"] >= 0]
    assert bought.groupby(["cycle", "site"]).size().tolist() == [5] * 6


# -- a comparison, and its exports -----------------------------------------------------


@pytest.fixture(scope="module")
def study(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> fl.Study:
    """Compare four strategies over five skewed sites, with three seeds."""
    federation = fl.Federation(folder, fl.Dirichlet(alpha=0.1), sites=5)
    out = tmp_path_factory.mktemp("study") / "digits"
    strategies = ["random", "margin", "typical-unsure", prefer_dark]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fl.compare(
            federation,
            strategies,
            seeds=3,
            budget=4,
            initial=4,
            cycles=1,
            encoder="fourier:features=64",
            out=out,
        )


def test_a_comparison_has_a_table_with_p_values(study: fl.Study) -> None:
    assert study.failures == ()
    table = study.table()
    assert len(table) == 4
    assert (table["mean"] > 2 * MOST_FREQUENT * 100).all()
    p = table["p"].dropna()
    assert len(p) == 3  # each strategy against random
    assert ((p > 0) & (p <= 1)).all()
    assert (table["p_holm"].dropna() >= p).all()


@pytest.mark.long
def test_a_comparison_is_drawn(study: fl.Study, tmp_path: Path) -> None:
    figure = study.plot()
    figure.savefig(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    page = study.report(tmp_path / "page.html")
    assert "prefer_dark" in page.read_text(encoding="utf-8")


def test_a_comparison_goes_into_a_paper(study: fl.Study) -> None:
    latex = study.to_latex()
    assert latex.startswith(r"\begin{table}")
    assert latex.count(r"\\") >= 5  # a header and four strategies
    bibtex = study.cite()
    assert bibtex.startswith("@software{fallow,")
    assert "@misc{scheffer2001active," in bibtex
    assert "prefer_dark" in bibtex  # marked as not part of Fallow


def test_a_model_is_kept_loaded_and_exported(study: fl.Study, tmp_path: Path) -> None:
    run = study.run("margin", seed=1)
    x = np.random.default_rng(1).random((7, 3, 8, 8), dtype=np.float32)
    probabilities = run.predict_proba(x)
    assert probabilities.shape == (7, 10)
    kept = fl.load_model(run.save(tmp_path / "model"))
    assert np.array_equal(kept.predict_proba(x), probabilities)
    assert study.folder is not None
    of_study = fl.load_model(study.folder, strategy="margin", seed=1)
    assert np.array_equal(of_study.predict_proba(x), probabilities)
    session = onnxruntime.InferenceSession(run.export(tmp_path / "model.onnx"))
    (output,) = session.run(None, {"examples": x})
    assert np.abs(output - probabilities).max() < 1e-5


# -- mistakes, and their messages ------------------------------------------------------


def select_from_huge_features() -> object:
    x = np.random.default_rng(1).normal(size=(20, 3)) * 1e200
    return fl.select(x, fl.LCMD(), n=2)


def select_half_precision_that_is_nothing() -> object:
    outputs = np.full((20, 3), 0.2, np.float16)
    return fl.select(np.ones((20, 2)), "margin", outputs=outputs, n=2)


def write_table(path: Path) -> Path:
    path.write_text("age,ill\n40,0\n50,1\n", encoding="utf-8")
    return path


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a table for fl.load": (
        lambda folder: fl.load(write_table(folder / "mine.csv")),
        r"mine\.csv is a table; set its column of labels with .*label=",
    ),
    "a file that is not there": (
        lambda folder: fl.load(folder / "mine.csv"),
        r"there is no file or folder .*mine\.csv'; give the path of one",
    ),
    "a folder without a model": (
        lambda folder: fl.load_model(folder),
        "give a folder that Run.save wrote",
    ),
    "a strange ending": (
        lambda folder: fl.run("iris", "random", cycles=0).export(folder / "model.bin"),
        r"model\.bin ends in neither \.onnx nor \.pt2",
    ),
    "a folder without images": (
        lambda folder: fl.Federation(folder),
        r"contains no images; .* a table with the columns file and label, such as labels\.csv",
    ),
    "features of 1e200": (
        lambda folder: select_from_huge_features(),
        r"the features of all 20 examples are .* beyond 1e\+50",
    ),
    "outputs that are neither": (
        lambda folder: select_half_precision_that_is_nothing(),
        "outputs_are=",
    ),
}
"""A call that looks right, and a part of the sentence that says what to write instead."""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(name: str, tmp_path: Path) -> None:
    call, sentence = MISTAKES[name]
    with pytest.raises(ValueError, match=sentence):
        call(tmp_path)


# -- order of arguments, and keywords of other libraries -------------------------------

POOL = np.random.default_rng(0).normal(size=(20, 3))
NEED_TWO_CLASSES = (
    fl.AHFAL(),
    fl.BALD(),
    fl.Complementary(),
    fl.DropQuery(),
    fl.Ensemble(),
    fl.Entropy(),
    fl.FEAL(),
    fl.FairFAL(),
    fl.IFAL(),
    fl.KSAS(),
    fl.LeastConfidence(),
    fl.Margin(),
    fl.MaxHerding(),
    fl.NoiseStability(),
    fl.OracleHistogram(),
    fl.ProbCover(),
    fl.TypicalUnsure(),
    fl.Typicality(),
    fl.UncertaintyHerding(),
)
CALLS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    # swapped arguments
    (
        lambda: fl.run(fl.Entropy(), "digits"),  # type: ignore[arg-type]
        {},
        "the first argument is a strategy; write fl.run(federation, strategy, ...)",
    ),
    (
        lambda: fl.run("entropy", "digits"),
        {},
        "the first argument is a strategy; write fl.run(federation, strategy, ...)",
    ),
    (
        lambda: fl.compare(["random", fl.Entropy()], "digits"),  # type: ignore[arg-type]
        {},
        "the first argument is a strategy; write fl.compare(federation, strategies, ...)",
    ),
    (
        lambda: fl.select(fl.CoreSet(), POOL, n=2),  # type: ignore[arg-type]
        {},
        "the first argument is a strategy; write fl.select(pool, strategy, n=...)",
    ),
    (
        lambda: fl.select(POOL, POOL, n=2),  # type: ignore[arg-type]
        {},
        "the second argument is a pool; write fl.select(pool, strategy, n=...)",
    ),
    (
        lambda: fl.run("digits", training=torch.optim.SGD),  # type: ignore[arg-type]
        {},
        "training is SGD, an optimizer of PyTorch; give a training algorithm",
    ),
    (
        lambda: fl.run("digits", training=Network),  # type: ignore[arg-type]
        {},
        "training is Network, which is no training algorithm: it has no contract",
    ),
    (
        lambda: fl.run("digits", partition="dirichlet:0.3", cycles=0),
        {},
        "'dirichlet:0.3' is not of the form module:Class or name:parameter=value",
    ),
    # missing arguments
    (fl.run, {}, "there is nothing to run; give a federation"),
    (lambda: fl.select(POOL, "random"), {}, "n is missing; give the number of examples"),
    (
        lambda: fl.select(POOL, n=2),
        {},
        "the strategy is missing; write fl.select(pool, strategy",
    ),
    (
        lambda: fl.select(None, "random", n=2),
        {},
        "the pool is None; give examples, or {'a': ",
    ),
    (
        lambda: fl.run("digits", None),  # type: ignore[arg-type]
        {},
        "strategy is None; give a query strategy, such as 'margin', or omit it",
    ),
    (
        lambda: fl.compare("iris", ["random", "margin"], reference="badge"),
        {},
        "reference is 'badge', which is not compared; add it to the strategies, or use one of "
        "random, margin",
    ),
    # values of a wrong type or length
    (
        lambda: fl.Federation("digits", fl.Natural()),
        {},
        "the data name no sites, which the partition natural needs; name them with the data",
    ),
    (
        lambda: fl.Federation("digits", sites=0),
        {},
        "sites is 0; give the number of sites, 1 or more",
    ),
    (
        lambda: fl.Federation("digits", sites=5000),
        {},
        "sites is 5000 and digits has 1438 training examples; give at most one site",
    ),
    (
        lambda: fl.run("digits", "random", encoder="resnet18"),
        {},
        "'resnet18' is not one of the encoders; for the pretrained network, write "
        "'timm:resnet18'",
    ),
    (
        lambda: fl.run("digits", "random", encoder="ViT-B-32"),
        {},
        "'ViT-B-32' is not one of the encoders; for the pretrained network, write "
        "'open-clip:ViT-B-32'",
    ),
    (
        lambda: fl.run("digits", "random", config="demoo"),
        {},
        "'demoo' is not an experiment configuration; did you mean 'demo'?",
    ),
    (
        fl.from_arrays,
        {"x": POOL, "y": None},
        "arrays: y is None; give one label per example",
    ),
    (
        fl.from_arrays,
        {"x": POOL, "y": [0, 1] * 10, "sites": ["a", "b"]},
        "arrays: sites has 2 values and x has 20 rows; give the site of each row",
    ),
    (fl.Dirichlet, {"alpha": "0.1"}, "alpha is '0.1'; it must be a number"),
    (fl.ExactDirichlet, {"alpha": "0.1"}, "alpha is '0.1'; it must be a number"),
    (fl.LongTail, {"rho": "10"}, "rho is '10'; it must be a number"),
    # one class
    (
        lambda: fl.run(fl.Federation(fl.from_arrays(POOL, [0] * 20), sites=2), "entropy"),
        {},
        "arrays: the labels contain only the class '0'; label examples",
    ),
    *(
        (
            fl.select,
            {
                "pool": {name: fl.Site(POOL, outputs=np.ones((20, 1))) for name in "ab"},
                "strategy": strategy,
                "n": 2,
            },
            f"{type(strategy).__name__} requires classes and this is a regression task"
            " (outputs have one column, and classes need two or more); use acs-fw, ",
        )
        for strategy in NEED_TWO_CLASSES
    ),
    # keywords of other libraries
    (
        fl.Federation,
        {"dataset": "digits", "n_clients": 5},
        "Federation has no setting 'n_clients'; did you mean 'sites'?",
    ),
    (
        fl.Federation,
        {"dataset": "digits", "partitions": 5},
        "Federation has no setting 'partitions'; did you mean 'partition'?",
    ),
    (fl.Federation, {}, "Federation: missing a required argument: 'dataset'; its settings"),
    (
        fl.FedAvg,
        {"learning_rate": 0.1},
        "FedAvg has no setting 'learning_rate'; did you mean 'lr'?",
    ),
    (
        fl.FedProx,
        {"local_epochs": 2},
        "FedProx has no setting 'local_epochs'; did you mean 'epochs'?",
    ),
    (fl.AHFAL, {"tua": 15}, "AHFAL has no setting 'tua'; did you mean 'tau'?"),
    (
        fl.Random,
        {"seed": 1},
        "Random has no setting 'seed', and no settings at all; omit it",
    ),
    (fl.Dirichlet, {"alfa": 1}, "Dirichlet has no setting 'alfa'; did you mean 'alpha'?"),
    (fl.MLP, {"hiden": [8]}, "MLP has no setting 'hiden'; did you mean 'hidden'?"),
    (fl.Optimizer, {"learning_rate": 1}, "Optimizer has no setting 'learning_rate'; did"),
    (fl.Privacy, {"eps": 1}, "Privacy has no setting 'eps'; did you mean 'epsilon'?"),
    (lambda: fl.Random(1), {}, "Random: too many positional arguments"),  # type: ignore[call-arg]
    (
        fl.select,
        {"pool": POOL, "strategy": "random", "n_instances": 2},
        "fl.select has no argument 'n_instances'; did you mean 'n'?",
    ),
    (
        fl.select,
        {"pool": POOL, "query_strategy": "random", "n": 2},
        "fl.select has no argument 'query_strategy'; did you mean 'strategy'?",
    ),
    (
        fl.select,
        {"pool": POOL, "strategy": "random", "budget": 2},
        "fl.select has no argument 'budget'; did you mean 'n'?",
    ),
    (
        fl.select,
        {"pool": POOL, "strategy": "random", "query_size": 2},
        "fl.select has no argument 'query_size'; did you mean 'n'?",
    ),
    (
        fl.run,
        {"federation": "digits", "learning_rate": 0.1},
        "learning_rate is not a setting; did you mean 'lr'?",
    ),
    (
        fl.run,
        {"federation": "digits", "num_rounds": 3},
        "num_rounds is not a setting; did you mean 'rounds'?",
    ),
    (
        fl.from_arrays,
        {"x": [[1.0]], "y": [0], "partition": 1},
        "fl.from_arrays has no argument 'partition': give it to fl.Federation(",
    ),
    (
        fl.from_arrays,
        {"X": [[1.0]], "y": [0]},
        "fl.from_arrays has no argument 'X'; did you mean 'x'?",
    ),
    (
        fl.from_frame,
        {"df": None, "target": "y"},
        "fl.from_frame has no argument 'target'; did you mean 'label'?",
    ),
    (fl.load, {}, "fl.load: missing a required argument: 'data'; its arguments are data"),
    (
        fl.read_study,
        {"path": "a"},
        "fl.read_study has no argument 'path'",
    ),
    (
        fl.compare,
        {"federation": "digits", "strategies": ["random"], "n_clients": 3},
        "n_clients is not a setting; did you mean 'sites'?",
    ),
]


@pytest.mark.parametrize(("call", "arguments", "sentence"), CALLS)
def test_a_mistake_is_answered_in_one_sentence(
    call: Callable[..., Any], arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as error:
        call(**arguments)
    message = str(error.value)
    assert message.startswith(sentence)
    assert "\n" not in message
    assert len(message) < 300


NOT_MADE_BY_HAND = {
    *("DataDescription", "LoadedModel", "Run", "Selection", "Study", "View"),
    *("SelectedExamples", "Release", "Strategy", "Training"),
}
"""Classes of what calls return and of what strategies are handed and return, and base classes."""
CLASSES = [
    name
    for name in sorted(public.WHERE)
    if isinstance(getattr(fl, name), type) and name not in NOT_MADE_BY_HAND
]


@pytest.mark.parametrize("name", CLASSES)
def test_a_setting_that_a_class_does_not_have_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"^{name} has no setting 'no_such_setting'"
    ) as error:
        getattr(fl, name)(no_such_setting=1)
    assert "\n" not in str(error.value)


def test_so_is_one_of_a_strategy_of_ones_own() -> None:
    class Largest(fl.Strategy):
        power: float = 1.0
        contract = fl.Contract(title="Largest")

        def select(self, view: fl.View, n: int) -> fl.SelectedExamples:
            return fl.SelectedExamples(torch.arange(n))

    with pytest.raises(
        ValueError, match="Largest has no setting 'powr'; did you mean 'power'"
    ):
        Largest(powr=2.0)  # type: ignore[call-arg]
