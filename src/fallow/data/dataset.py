"""Datasets in memory: examples, labels, natural sites, and a separate test set."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fallow.core.missing import Missing
from fallow.core.multilabel import BASE, MOST_LABELS
from fallow.core.streams import stream
from fallow.core.suggestions import explain_constructor
from fallow.core.wording import count_noun
from fallow.data.loaders.scaling import PixelScale
from fallow.data.reading import Finding, Reading, note

Task = Literal["classification", "regression", "multilabel"]
UNLABELED = -1
DONE = "done"
"""The only class of a study whose examples are annotated elsewhere, without training."""
LABEL_TYPES = (torch.int64, torch.float32, torch.float64)


@explain_constructor
@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples with labels, and a test set with the same columns.

    The task is multilabel with ``labels``, and otherwise classification or regression, depending on
    the dtype of ``y``.

    Parameters
    ----------
    name : str
        Name of the dataset.
    x : Tensor
        (n, ...) float32; images (n, c, h, w), normalized.
    y : Tensor
        (n,) int64 class ids, -1 for unlabeled; or targets, NaN for unlabeled: float32, or float64
        if float32 would lose their digits.  With ``labels``: numbers of
        `fallow.core.multilabel.write_answers`.
    x_test : Tensor
        (m, ...) float32; m may be 0.
    y_test : Tensor
        (m,) labels of the test set; all are labeled.
    classes : tuple of str
        Names of the classes by id; empty for other tasks.
    labels : tuple of str
        Names of the labels, each of which is absent, present or unknown for an example; empty for
        other tasks.
    sites : Tensor, optional
        (n,) int64 natural site of every example.
    sites_test : Tensor, optional
        (m,) int64 natural site of every test example.
    site_names : tuple of str
        Names of the natural sites by id.
    columns : tuple of str
        Names of the features of a table; otherwise empty.
    ids : tuple of str, optional
        (n,) names of examples or files.
    findings : tuple of Finding
        Choices and possible errors of the import; ``notes`` has their sentences.
    missing : Missing, optional
        Imputation of empty cells, which are NaN in ``x`` and ``x_test``.
    offsets : tuple of float
        Number that was subtracted from each feature, so that float32 keeps its digits; empty if
        none was.
    scale : PixelScale, optional
        Normalization of images, which is applied to new images as well.
    reading : Reading, optional
        Summary of the import of a user's own data.
    physical_range : tuple of float, optional
        Physical values of DICOM images that became 0 and 1; None for images without units.
    groups : Tensor, optional
        (n,) int64 group of every example, such as its patient; no split divides a group.
    groups_test : Tensor, optional
        (m,) int64 group of every test example; none is a group of the training set.

    Raises
    ------
    ValueError
        If shapes differ, a feature is not finite (except NaN with ``missing``), a label has no
        class, or there is no example.

    Examples
    --------
    >>> d = Dataset(
    ...     "toy",
    ...     torch.eye(4),
    ...     torch.tensor([0, 1, 0, -1]),
    ...     torch.zeros(1, 4),
    ...     torch.tensor([1]),
    ...     classes=("no", "yes"),
    ... )
    >>> d
    Dataset(toy: 4 rows of 4, 2 classes, 1 unlabeled, 1 test rows)
    >>> d.task, d.n_classes, int(d.is_labeled.sum())
    ('classification', 2, 3)
    """

    name: str
    x: Tensor  # (n, ...) float32; images (n, c, h, w), normalized
    y: Tensor  # (n,) int64, -1 unlabeled; or float, then NaN
    x_test: Tensor  # (m, ...) float32; m may be 0
    y_test: Tensor  # (m,) as y; every test row has its label
    classes: tuple[str, ...] = ()  # names by class id; empty for other tasks
    sites: Tensor | None = None  # (n,) int64: natural site of every row
    sites_test: Tensor | None = None  # (m,) int64
    site_names: tuple[str, ...] = ()  # names by site id
    columns: tuple[str, ...] = ()  # names of the features of a table, else empty
    ids: tuple[str, ...] | None = None  # a user's own row or file names, (n,)
    findings: tuple[Finding, ...] = ()  # choices and possible errors of the import
    missing: Missing | None = None  # imputation of empty cells, NaN in x and x_test
    offsets: tuple[float, ...] = ()  # what was subtracted from each feature of a table
    scale: PixelScale | None = None  # normalization of images
    reading: Reading | None = None  # summary of the import of a user's own data
    physical_range: tuple[float, float] | None = None  # physical values that became 0 and 1
    groups: Tensor | None = None  # (n,) int64: no split divides a group
    groups_test: Tensor | None = None  # (m,) int64
    labels: tuple[str, ...] = ()  # names of several labels of an example

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_labels(self)
        _check_sites(self)
        _check_groups(self)
        can_lack = self.missing is not None
        check_finite(self.name, "training rows", self.x, self.columns, can_lack)
        check_finite(self.name, "test rows", self.x_test, self.columns, can_lack)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.x.shape[1:]))
        what = "numbers to predict"
        if self.classes:
            what = f"{self.n_classes} classes"
        if self.labels:
            what = f"{len(self.labels)} labels"
        sites = ""
        if self.sites is not None:
            sites = f", {len(self.site_names)} sites"
        if self.groups is not None:
            sites += f", {count_noun(self.n_groups, 'group')}"
        missing = int((~self.is_labeled).sum())
        unlabeled = ""
        if missing:
            unlabeled = f", {missing} unlabeled"
        return (
            f"Dataset({self.name}: {len(self.x)} rows of {shape}, {what}{unlabeled}{sites}, "
            f"{len(self.x_test)} test rows)"
        )

    @property
    def task(self) -> Task:
        """Task, determined by the names of several labels and by the dtype of ``y``."""
        if self.labels:
            return "multilabel"
        if self.y.is_floating_point():
            return "regression"
        return "classification"

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_outputs(self) -> int:
        """Number of outputs of a model: one per class or label, and one for regression."""
        return len(self.labels) or len(self.classes) or 1

    @property
    def n_groups(self) -> int:
        """Number of groups of training and test examples; 0 without groups."""
        parts = [part for part in (self.groups, self.groups_test) if part is not None]
        return len(torch.unique(torch.cat(parts))) if parts else 0

    @property
    def is_labeled(self) -> Tensor:
        """Mask of labeled training examples: (n,) bool."""
        if self.task == "regression":
            return ~self.y.isnan()
        return self.y != UNLABELED

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings: warnings first."""
        ordered = sorted(self.findings, key=lambda finding: finding.severity != "warning")
        return tuple(finding.sentence for finding in ordered)

    @property
    def pixel_range(self) -> tuple[float, float] | None:
        """Smallest and largest number in the training images; None for other data."""
        if self.x.ndim != 4:
            return None
        return float(self.x.min()), float(self.x.max())

    @property
    def units(self) -> dict[str, str]:
        """Units of the columns whose cells have one."""
        columns = self.reading.columns if self.reading is not None else ()
        return {column.name: column.unit for column in columns if column.unit}

    def with_findings(self, *findings: Finding) -> Dataset:
        """Return the dataset with further findings."""
        return dataclasses.replace(self, findings=(*self.findings, *findings))

    def rows(self, n: int, stream: torch.Generator) -> Dataset:
        """Return the dataset with ``n`` training examples drawn at random, in their order.

        Parameters
        ----------
        n : int
            Number of training examples.
        stream : torch.Generator
            Random generator of the draw.
        """
        keep = _draw(n, len(self.x), stream, f"training rows of {self.name}")
        return self.take(keep)

    def take(self, at: Tensor) -> Dataset:
        """Return the dataset with some of its training examples.

        Parameters
        ----------
        at : Tensor
            (k,) positions.
        """
        ids = self.ids
        if ids is not None:
            ids = tuple(ids[row] for row in at.tolist())
        return dataclasses.replace(
            self,
            x=take_rows(self.x, at),
            y=self.y[at],
            sites=take_some(self.sites, at),
            groups=take_some(self.groups, at),
            ids=ids,
        )

    def test_rows(self, n: int, stream: torch.Generator) -> Dataset:
        """Return the dataset with ``n`` test examples drawn at random, in their order.

        Parameters
        ----------
        n : int
            Number of test examples.
        stream : torch.Generator
            Random generator of the draw.
        """
        return _keep_test(
            self, _draw(n, len(self.x_test), stream, f"test rows of {self.name}")
        )


def warn_of_findings(dataset: Dataset, stacklevel: int) -> None:
    """Issue the warnings among the findings as Python warnings, for callers in Python."""
    for finding in dataset.findings:
        if finding.severity == "warning" and not finding.is_doubtful:
            warnings.warn(f"{dataset.name}: {finding.advice}", stacklevel=stacklevel)


def take_rows(x: Tensor, at: Tensor) -> Tensor:
    """Return the examples x[at].  at: (k,) positions, or (n,) bool.

    If all examples share memory, as in an outline of many images, nothing is copied.
    """
    is_one_row = len(x) > 0 and x.stride(0) == 0
    if not is_one_row:
        return x[at]
    count = len(at)
    if at.dtype == torch.bool:
        count = int(at.sum())
    return repeat_row(x[:1], count)


def take_some(values: Tensor | None, at: Tensor) -> Tensor | None:
    """Return values[at], or None for None.  at: (k,) positions, or (n,) bool."""
    return None if values is None else values[at]


def repeat_row(row: Tensor, n: int) -> Tensor:
    """Repeat an example n times without a copy: (1, ...) -> (n, ...)."""
    item = row.shape[1:]
    return row.expand(n, *item)


def row_hashes(x: Tensor) -> list[bytes]:
    """Return a 16-byte hash of each example: (n, ...) -> n hashes.  -0.0 equals 0.0.

    >>> a, b = row_hashes(torch.tensor([[0.0, 1.0], [-0.0, 1.0]]))
    >>> a == b
    True
    """
    if len(x) == 0:
        return []
    rows: npt.NDArray[np.float32] = x.detach().cpu().reshape(len(x), -1).numpy()
    hashes = []
    for row in rows:
        unsigned = row + 0.0  # -0.0 + 0.0 is 0.0
        hashes.append(hashlib.blake2b(unsigned.tobytes(), digest_size=16).digest())
    return hashes


Copies = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""First example of each kind of equal ones, and the kind of each example."""


def copies_of(x: Tensor) -> Copies:
    """Find duplicates: the first example of each kind, and the kind of each example.

    x: (n, ...) -> (k,) positions, and (n,) numbers below k, in no particular order.  -0.0 equals
    0.0, and NaN equals NaN.

    >>> first, kind = copies_of(torch.tensor([[0.0, 1.0], [2.0, 1.0], [-0.0, 1.0]]))
    >>> sorted(first.tolist()), bool(kind[0] == kind[2] != kind[1])
    ([0, 1], True)
    """
    sums = row_sums(x)
    _, first, kind = np.unique(sums, return_index=True, return_inverse=True)
    if len(first) == len(x) or _are_equal(x, first[kind]):
        return first, kind
    # different examples have the same sum with probability 2^-64
    hashes = np.array(row_hashes(x), dtype="V16")
    _, first, kind = np.unique(hashes, return_index=True, return_inverse=True)
    return first, kind


BLOCK = 1 << 14
"""Number of examples per block, so that no second copy of a large dataset is in memory."""


def row_sums(x: Tensor) -> npt.NDArray[np.uint64]:
    """Return a 64-bit number for each example, equal for duplicates: (n, ...) -> (n,).

    It is the sum of the bits of the values, each times its own odd number, so examples that differ
    in one value never have the same number.
    """
    if len(x) == 0:
        return np.zeros(0, dtype=np.uint64)
    rows = x.detach().cpu().reshape(len(x), -1).numpy()
    draw = stream(0, "row sums")
    numbers = torch.randint(0, 1 << 62, (rows.shape[1],), generator=draw)
    odd = 2 * numbers.numpy().astype(np.uint64) + np.uint64(1)
    sums = np.empty(len(rows), dtype=np.uint64)
    for begin in range(0, len(rows), BLOCK):
        block = rows[begin : begin + BLOCK] + np.float32(0.0)  # -0.0 is 0.0
        block[np.isnan(block)] = np.nan
        sums[begin : begin + BLOCK] = block.view(np.uint32).astype(np.uint64) @ odd
    return sums


def _are_equal(x: Tensor, other: npt.NDArray[np.int64]) -> bool:
    """Return whether each example equals the example at the position in ``other``."""
    rows = x.detach().cpu().reshape(len(x), -1).numpy()
    at = np.flatnonzero(other != np.arange(len(rows)))
    for begin in range(0, len(at), BLOCK):
        some = at[begin : begin + BLOCK]
        if not np.array_equal(rows[some], rows[other[some]], equal_nan=True):
            return False
    return True


def check_leak(dataset: Dataset) -> None:
    """Raise ValueError if a test example has exactly the features of a training example."""
    leaks = find_leaks(dataset.x, dataset.x_test)
    if leaks:
        test, train = next(iter(leaks.items()))
        raise ValueError(
            f"{dataset.name}: {len(leaks)} of {len(dataset.x_test)} test examples are "
            f"also training examples (test row {test} is training row {train}); remove "
            "them, or call fallow.data.drop_leaks(dataset)"
        )


def drop_leaks(dataset: Dataset) -> Dataset:
    """Return the dataset without test examples that are also training examples, with a note."""
    leaks = find_leaks(dataset.x, dataset.x_test)
    if not leaks:
        return dataset
    kept_rows = [row for row in range(len(dataset.x_test)) if row not in leaks]
    sentence = f"{len(leaks)} test examples that are also training examples were left out"
    kept = _keep_test(dataset, torch.tensor(kept_rows, dtype=torch.int64))
    return kept.with_findings(note(sentence))


def find_leaks(x: Tensor, x_test: Tensor) -> dict[int, int]:
    """Return test position -> position of a training example with the same features.

    >>> find_leaks(torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]]))
    {1: 1}
    """
    is_possible = np.isin(row_sums(x_test), row_sums(x))
    if not is_possible.any():
        return {}
    training_row = {digest: row for row, digest in enumerate(row_hashes(x))}
    leaks = {}
    for row, digest in enumerate(row_hashes(x_test)):
        if digest in training_row:
            leaks[row] = training_row[digest]
    return leaks


def _keep_test(dataset: Dataset, keep: Tensor) -> Dataset:
    return dataclasses.replace(
        dataset,
        x_test=take_rows(dataset.x_test, keep),
        y_test=dataset.y_test[keep],
        sites_test=take_some(dataset.sites_test, keep),
        groups_test=take_some(dataset.groups_test, keep),
    )


def _draw(n: int, available: int, stream: torch.Generator, what: str) -> Tensor:
    if not 0 < n <= available:
        raise ValueError(
            f"{n} rows of {available} {what} are requested; give a number from 1 to "
            f"{available}"
        )
    return torch.randperm(available, generator=stream)[:n].sort().values


def _check_shapes(d: Dataset) -> None:
    if d.x.ndim < 2 or len(d.x) == 0 or d.x[0].numel() == 0:
        raise ValueError(
            f"{d.name} has no data: x has shape {tuple(d.x.shape)}, and needs at least "
            "one row and one feature"
        )
    if d.x.shape[1:] != d.x_test.shape[1:]:
        raise ValueError(
            f"{d.name}: a training row has shape {tuple(d.x.shape[1:])} and a test "
            f"row {tuple(d.x_test.shape[1:])}; they must agree"
        )
    for part, x, y in (("training", d.x, d.y), ("test", d.x_test, d.y_test)):
        if y.shape != x.shape[:1]:
            raise ValueError(
                f"{d.name}: {len(x)} {part} rows but labels of shape {tuple(y.shape)}; "
                "give one label per row"
            )
        if x.dtype != torch.float32:
            raise ValueError(f"{d.name}: {part} features are {x.dtype}; give torch.float32")
    if d.columns and (d.x.ndim != 2 or len(d.columns) != d.x.shape[1]):
        raise ValueError(
            f"{d.name}: {len(d.columns)} column names for features of shape "
            f"{tuple(d.x.shape[1:])}; give one name per feature, or none"
        )
    if len(set(d.columns)) != len(d.columns):
        double = next(name for name in d.columns if d.columns.count(name) > 1)
        raise ValueError(f"{d.name} has more than one column {double!r}; rename one")
    if d.ids is not None and len(d.ids) != len(d.x):
        raise ValueError(
            f"{d.name}: {len(d.ids)} row names for {len(d.x)} rows; give one per row"
        )


def _check_labels(d: Dataset) -> None:
    if d.y.dtype != d.y_test.dtype or d.y.dtype not in LABEL_TYPES:
        raise ValueError(
            f"{d.name}: labels are {d.y.dtype} and {d.y_test.dtype} (test); give "
            "torch.int64 class ids or torch.float32 targets for both"
        )
    if d.task == "multilabel":
        _check_answers(d)
        return
    if d.task == "regression":
        if d.classes or d.y.isinf().any() or not d.y_test.isfinite().all():
            raise ValueError(
                f"{d.name}: regression targets have no class names, are never infinite, "
                "and are NaN (unlabeled) only in training rows"
            )
        return
    if len(set(d.classes)) != len(d.classes):
        raise ValueError(f"{d.name}: class names {d.classes} are not distinct; rename one")
    fewest = 1 if d.classes == (DONE,) else 2
    if d.n_classes < fewest and (d.is_labeled.any() or len(d.y_test)):
        raise ValueError(
            f"{d.name} has labels but {d.n_classes} class names; give at least 2"
        )
    for part, y, low in (("training", d.y, UNLABELED), ("test", d.y_test, 0)):
        is_too_large = (y >= d.n_classes) & (y != UNLABELED)
        wrong = y[(y < low) | is_too_large]
        if len(wrong):
            raise ValueError(
                f"{d.name}: {len(wrong)} {part} labels are out of range (for example "
                f"{int(wrong[0])}); use {low} to {d.n_classes - 1}"
            )


def _check_answers(d: Dataset) -> None:
    """Raise ValueError for impossible answers to several labels."""
    if d.classes or not 1 < len(d.labels) <= MOST_LABELS:
        raise ValueError(
            f"{d.name} has the labels {d.labels} and the classes {d.classes}; give 2 to "
            f"{MOST_LABELS} labels and no class, or classes alone"
        )
    if len(set(d.labels)) != len(d.labels):
        raise ValueError(
            f"{d.name}: names of labels {d.labels} are not distinct; rename one"
        )
    largest = BASE ** len(d.labels) - 1
    for part, y, low in (("training", d.y, UNLABELED), ("test", d.y_test, 0)):
        if y.dtype != torch.int64 or bool(((y < low) | (y >= largest)).any()):
            raise ValueError(
                f"{d.name}: answers of {part} examples are not numbers from {low} to "
                f"{largest - 1}; write them with fallow.core.multilabel.write_answers"
            )


def _check_sites(d: Dataset) -> None:
    for part, sites, x in (("training", d.sites, d.x), ("test", d.sites_test, d.x_test)):
        if sites is None:
            continue
        if sites.dtype != torch.int64 or sites.shape != x.shape[:1]:
            raise ValueError(
                f"{d.name}: {part} sites are {sites.dtype} of shape "
                f"{tuple(sites.shape)}; give torch.int64, one per row ({len(x)})"
            )
        if len(sites) == 0:
            continue
        if sites.min() < 0 or sites.max() >= len(d.site_names):
            raise ValueError(
                f"{d.name}: {part} sites go from {int(sites.min())} to "
                f"{int(sites.max())} but {len(d.site_names)} sites have a name; name "
                "every site, in the order of ids"
            )


def _check_groups(d: Dataset) -> None:
    parts = (("training", d.groups, d.x), ("test", d.groups_test, d.x_test))
    for part, groups, x in parts:
        if groups is None:
            continue
        if groups.dtype != torch.int64 or groups.shape != x.shape[:1]:
            raise ValueError(
                f"{d.name}: {part} groups are {groups.dtype} of shape "
                f"{tuple(groups.shape)}; give torch.int64, one per row ({len(x)})"
            )
    if d.groups is None or d.groups_test is None:
        return
    is_divided = torch.isin(d.groups_test, d.groups)
    if is_divided.any():
        test = int(is_divided.nonzero()[0])
        train = int((d.groups == d.groups_test[test]).nonzero()[0])
        n_divided = len(torch.unique(d.groups_test[is_divided]))
        raise ValueError(
            f"{d.name}: {count_noun(n_divided, 'group')} in both training and test examples "
            f"(test row {test} and training row {train} are of one group); move each group to "
            "one side, or omit the test set, so that whole groups are held out"
        )


def _is_bad(x: Tensor, can_lack: bool) -> Tensor:
    """Return a mask of infinite numbers, and of NaN unless cells can be empty."""
    if can_lack:
        return x.isinf()
    return ~x.isfinite()


def _has_bad(x: Tensor, can_lack: bool) -> bool:
    """Return whether `_is_bad` is true somewhere; the extremes of finite numbers tell it sooner."""
    if x.numel() == 0:
        return False
    extremes = torch.stack(torch.aminmax(x))  # NaN if a number is
    return bool(_is_bad(extremes, can_lack=False).any()) and bool(
        _is_bad(x, can_lack).any()
    )


def check_finite(
    name: str, rows: str, x: Tensor, columns: tuple[str, ...] = (), can_lack: bool = False
) -> None:
    """Raise ValueError if a feature is NaN or infinite, with column and count for a table.

    x: (n, ...); ``rows``: description of the examples; columns: names of the features of a table.
    can_lack: NaN is an empty cell, which is imputed later.
    """
    if len(x) > 1 and x.stride(0) == 0:  # all examples share memory
        x = x[:1]
    blocks = torch.split(x, BLOCK)  # an operation on all at once would copy them
    if not any(_has_bad(block, can_lack) for block in blocks):
        return
    bad = _is_bad(x, can_lack)
    where = f"row {int(bad.flatten(1).any(1).nonzero()[0])}"
    if x.ndim == 2:
        column = int(bad.any(0).nonzero()[0])
        bad = bad[:, column]
        where = f"column {column}"
        if columns:
            where = f"column {columns[column]!r}"
    raise ValueError(
        f"{name}: {where} of the {rows} has {int(bad.sum())} values that are not finite "
        "(NaN or infinite); correct them, or omit the feature, or these rows with "
        "drop_rows"
    )


def embed_rows(dataset: Dataset, module: nn.Module, *, batch: int = 256) -> Dataset:
    """Return the dataset with each example replaced by ``module.embed(row)``, or
    ``module(row)``.

    Examples become (n, d) float32, with further dimensions flattened. Labels, sites and
    example names are kept, and column names are dropped, with a note. A copy of the module
    runs in evaluation mode without gradients, on its own device and with its own type,
    ``batch`` examples at a time. Raises ValueError for a batch below 1 and for features
    that are not finite.

    >>> d = Dataset("toy", torch.eye(3), torch.rand(3), torch.zeros(0, 3), torch.zeros(0))
    >>> embed_rows(d, nn.Linear(3, 2)).x.shape
    torch.Size([3, 2])
    """
    if dataset.missing is not None:
        raise ValueError(
            f"{dataset.name} has empty cells, which a frozen model does not support; omit "
            "such rows with drop_rows=true"
        )
    if batch < 1:
        raise ValueError(f"the batch is {batch}; give at least 1 row")
    frozen = copy.deepcopy(module).eval()
    embed: Callable[[Tensor], Tensor] = getattr(frozen, "embed", frozen)
    like = next(frozen.parameters(), dataset.x)

    @torch.no_grad()
    def features(x: Tensor) -> Tensor:
        blocks = [
            embed(block.to(like)).flatten(1).float().cpu()
            for block in torch.split(x, batch)
        ]
        return torch.cat(blocks)

    x = features(dataset.x)
    x_test = x.new_zeros(0, x.shape[1])
    if len(dataset.x_test):
        x_test = features(dataset.x_test)
    sentence = f"rows are the {x.shape[1]} features of a frozen {type(module).__name__}"
    embedded = dataclasses.replace(dataset, x=x, x_test=x_test, columns=())
    return embedded.with_findings(note(sentence))
