"""A site with planted names, a planted row and labels, and the search for them in bytes."""

from __future__ import annotations

import base64
import csv
import inspect
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest
import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.events import Event
from fallow.core.exchange_key import read_key
from fallow.core.names import BUILT_IN, NamePolicy, distribution_digest
from fallow.core.types import SiteId, Values
from fallow.core.values import Real
from fallow.core.view import SelectedExamples, View
from fallow.deployment.agreement import Agreement, Timeouts, at_sites
from fallow.deployment.ledger import Ledger
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import write_agreement
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.settings.config import ExperimentConfig
from fallow.storage.packing import unpack
from fallow.strategies.base import Budget, Memo, label_counts, selects
from tests.deployment.simulations import WAITS, Federation
from tests.packages import install

SITES = ("basel", "chur", "davos")
PLANTED = "davos"  # the site with the planted values
FOLDER, FILE, TESTS = "sanatorium-berghof", "mountain-patients.csv", "mountain-controls.csv"
ROW, ANNOTATOR, WHY, NUMBER = (
    "castorp-hans-1907",
    "Clawdia Chauchat",
    "asked by Settembrini",
    31.415926,
)
SECOND = "Joachim Ziemssen"  # annotates examples with two annotations
CLASSES, WARDS = (
    ("febrile-zauber", "afebrile-zauber"),
    ("liegehalle-ost", "liegehalle-west"),
)
NUMBERS = (1.2345678, -2.718281, 0.5772156, -1.618033, 2.414213, -0.9159655)  # of the row
COUNT, TEST_COUNT, AT, SIGNATURE = 27, 22, 4, 64
SAME = 0.999


def schema(is_class: bool) -> Schema:
    columns = (
        *(Column(f"x{i}", "mg") for i in range(len(NUMBERS))),
        Column("ward", values=WARDS),
    )
    task: Any = "classification" if is_class else "regression"
    shape = (len(NUMBERS) + len(WARDS),)
    return Schema("table", task, "y", CLASSES if is_class else (), columns, shape, "id")


def lines(site: SiteId, is_class: bool) -> list[list[str]]:
    """Return name, features and label of each row and, after them, of each test row.
    The fifth row of `PLANTED` is planted."""
    draw = np.random.default_rng(SITES.index(site))
    traces = []
    for i in range(COUNT + TEST_COUNT):
        is_planted = (site, i) == (PLANTED, AT)
        x = (
            list(NUMBERS)
            if is_planted
            else draw.normal(size=len(NUMBERS)).round(7).tolist()
        )
        y = CLASSES[int(draw.random() < 0.5)] if is_class else repr(round(sum(x), 7))
        label = repr(NUMBER) if is_planted and not is_class else y
        name = ROW if is_planted else f"{site}-name-{i:04d}"
        traces.append([name, *map(repr, x), WARDS[i % 2], label])
    return traces


def planted(
    folder: Path,
    config: ExperimentConfig,
    is_class: bool = True,
    names: tuple[SiteId, ...] = SITES,
    waits: Timeouts = WAITS,
    first: int = 0,
    policy: NamePolicy = BUILT_IN,
    **chosen: Any,
) -> Federation:
    """Create sites, of which `PLANTED` has distinctive names and one labeled example.
    ``first`` is the number of other labeled examples at every site; ``policy`` names the
    classes that all sites allow."""
    chosen["allow"] = policy.allowed
    agreed_on = schema(is_class)
    secret = new_signing_key()
    agreement_of_study = at_sites(config, "alps", len(names), agreed_on)
    agreement = Agreement(
        "alps",
        agreement_of_study,
        agreed_on,
        names,
        verify_key(secret),
        0,
        waits,
        names=policy,
    )
    write_agreement(folder / "study.toml", agreement)
    sites = {site: _site(folder, site, is_class, first, **chosen) for site in names}
    return Federation(folder, agreement, agreed_on.example, secret, sites)


def _site(
    folder: Path, site: SiteId, is_class: bool, first: int, **chosen: Any
) -> SiteFolder:
    path = folder / (FOLDER if site == PLANTED else f"folder of {site}")
    path.mkdir()
    head = ["id", *(f"x{i}" for i in range(len(NUMBERS))), "ward", "y"]
    rows = lines(site, is_class)
    pool = [
        r if r[0] == ROW or i < first else [*r[:-1], ""] for i, r in enumerate(rows[:COUNT])
    ]
    for name, part in ((FILE, pool), (TESTS, rows[COUNT:])):
        with (path / name).open("w", newline="") as file:
            csv.writer(file).writerows([head, *part])
    chosen |= {"name": site, "data": str(path / FILE), "test": str(path / TESTS)}
    return SiteFolder.create(path, folder / "study.toml", **chosen)


def people(simulation: Federation) -> Callable[[Event], None]:
    """Return a listener that answers open labeling tasks and withdraws one example."""

    def notify(event: Event) -> None:
        simulation.events.append(event)
        if event["event"] == "labels":
            for site, ledger in simulation.ledgers.items():
                label(site, ledger, simulation.agreement.schema)

    return notify


def label(site: SiteId, ledger: Ledger, agreed_on: Schema) -> None:
    """Answer open labeling tasks; at `PLANTED`, withdraw the first example asked for."""
    truth = [line[-1] for line in lines(site, bool(agreed_on.classes))]
    for asked in ledger.tasks(state="open"):
        for annotator in (ANNOTATOR, SECOND)[: asked.needed]:
            ledger.answer(asked.row, agreed_on.value(truth[asked.row]), annotator)
    asked_at_all = ledger.tasks()
    if site == PLANTED and asked_at_all and not ledger.tasks(state="withdrawn"):
        ledger.withdraw(asked_at_all[0].row, ANNOTATOR, WHY)


def rows_of(site: SiteFolder, ledger: Ledger) -> list[Tensor]:
    """Return the planted row, (d,), in the units of its file and as models receive it."""
    raw = site.rows.x[AT].double()
    scale = ledger.store.load_states(PLANTED).get("features")
    if scale is None:
        return [raw]
    return [raw, torch.where(scale["std"] > 0, (raw - scale["mean"]) / scale["std"], 0.0)]


def labels_of(ledger: Ledger) -> list[Tensor]:
    """Return the labels of the planted site by row: the initial ones, if many, and all."""
    outcome = sorted(ledger.store.load_labels(PLANTED))
    lists = (
        [label.value for label in outcome if label.cycle < 0],
        [label.value for label in outcome],
    )
    assert len(outcome) > 5
    return [
        torch.tensor(values, dtype=torch.float64) for values in lists if len(values) > 5
    ]


# -- search patterns -----------------------------------------------------------------------


def texts() -> list[bytes]:
    """Return names, texts and numbers: plain, in base64, and in UTF-16."""
    names = (
        FOLDER,
        FILE,
        TESTS,
        ROW,
        ANNOTATOR,
        SECOND,
        WHY,
        *CLASSES,
        *WARDS,
        f"{PLANTED}-name-",
    )
    digits = {text for value in (*NUMBERS, NUMBER) for text in decimals(value)}
    plain = [text.encode() for text in (*names, *sorted(digits))]
    wide = [name.encode(code) for name in names for code in ("utf-16-le", "utf-16-be")]
    return plain + wide + [part for name in names for part in in_base64(name.encode())]


def decimals(value: float) -> set[str]:
    """Format a number with six digits, truncated (more may follow) and rounded."""
    return {repr(value)[: 7 + (value < 0)], f"{value:.6g}", f"{value:.5f}"}


def in_base64(content: bytes) -> list[bytes]:
    """Return ``content`` in base64 for each possible offset within the encoded bytes."""
    outcome = []
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + content)
        outcome.append(text[4 if shift else 0 : -4])  # independent of adjacent bytes
    return outcome


def numbers() -> list[bytes]:
    """Return the planted numbers as bytes."""
    rounded = [float(np.float32(value)) for value in (*NUMBERS, NUMBER)]
    row = struct.pack(f"<{len(NUMBERS)}f", *NUMBERS)
    return pack_floats((*NUMBERS, NUMBER)) + pack_floats(rounded) + in_base64(row)


def pack_floats(values: Sequence[float]) -> list[bytes]:
    """Pack adjacent numbers into 8 bytes: one as 8, two as 4 or four as 2 bytes each."""
    return [
        struct.pack(f"{end}{many}{kind}", *values[i : i + many])
        for end in "<>"
        for kind, many in (("d", 1), ("f", 2), ("e", 4))
        for i in range(len(values) - many + 1)
    ]


def hidden_in(blob: bytes, rows: Sequence[Tensor] = ()) -> list[bytes]:
    """Return the planted values in these bytes; ``rows``: other forms of the row, (d,)."""
    seen = [needle for row in rows for needle in pack_floats(row[: len(NUMBERS)].tolist())]
    return [needle for needle in (*texts(), *numbers(), *seen) if needle in blob]


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor of a nested structure."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, list):
        numbers = [
            v for v in tree if isinstance(v, (int, float)) and not isinstance(v, bool)
        ]
        yield torch.tensor(numbers, dtype=torch.float64)
        for value in tree:
            yield from tensors(value)


def parallel(tensor: Tensor, to: Tensor, is_shifted: bool = False) -> bool:
    """Return whether adjacent values along any axis of ``tensor`` are a multiple of ``to``,
    (d,), or of a shifted ``to``."""
    d = len(to)
    table = tensor.detach().double()
    lines = [table.reshape(1, -1)] + (
        [table.reshape(len(table), -1).T] if table.ndim > 1 else []
    )
    windows = [line.unfold(1, d, 1).reshape(-1, d) for line in lines if line.shape[1] >= d]
    if not windows:
        return False
    outcome = torch.cat(windows)
    wanted = to.double()  # (n, d), (d,)
    if is_shifted:
        outcome = outcome - outcome.mean(1, keepdim=True)
        wanted = wanted - wanted.mean()
    size = outcome.norm(dim=1) * wanted.norm()
    return bool((((outcome @ wanted).abs() / size.clamp_min(1e-12)) > SAME).any())


@dataclass
class Wire:
    """Record every message to and from every site as bytes."""

    up: list[tuple[SiteId, bytes]] = field(default_factory=list)
    down: list[tuple[SiteId, bytes]] = field(default_factory=list)

    def tap(
        self, site: SiteId, handle: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes]:
        def answer(blob: bytes) -> bytes:
            reply = handle(blob)
            assert reply is not None, "a site of this wire always answers"
            self.down.append((site, blob))
            self.up.append((site, reply))
            return reply

        return answer

    def find_traces(self, rows: Sequence[Tensor], labels: Sequence[Tensor]) -> list[str]:
        """Return the planted values found in any message, in the format of `found_in`."""
        blobs = [blob for _, blob in (*self.up, *self.down)]
        messages = [unpack(blob[SIGNATURE:]) for site, blob in self.up if site == PLANTED]
        return found_in(b"\n".join(blobs), messages, rows, labels)


def found_in(
    blob: bytes, messages: Sequence[Any], rows: Sequence[Tensor], labels: Sequence[Tensor]
) -> list[str]:
    """Return the planted values found in these bytes, and the places in the replies
    ``messages`` with the direction of a row, (d,), or of a list of labels, (n,)."""
    names = [repr(needle) for needle in hidden_in(blob, rows)]
    sent = [(tree["key"], tensor) for tree in messages for tensor in tensors(tree["body"])]
    for what, vectors in (("row", rows), ("labels", labels)):
        names += [
            f"{what} in {tuple(tensor.shape)} of {read_key(key)}"
            for key, tensor in sent
            for vector in vectors
            if parallel(tensor, vector) or parallel(tensor, vector, is_shifted=True)
        ]
    return names


@final
@dataclass(frozen=True)
class Leaky:
    """A strategy that sends what it should not."""

    what: str = "rows"
    contract: ClassVar[Contract] = Contract(
        "Leaky",
        "-",
        0,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.each(self.peek)
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @client.each(
        "what nobody should see",
        returns=lambda self: {
            "seen": Real("examples" if self.what == "labels" else ("examples", "columns"))
        },
    )
    def peek(self, view: View) -> Values:
        if self.what == "labels":
            return {"seen": 0.25 * view.labels + 3}
        seen = -0.1 * view.rows("labeled")
        return {"seen": seen.T if self.what == "columns" else seen}

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        return SelectedExamples(torch.arange(n))


LEAKY = "leaky_of_tests"


def install_leaky(folder: Path, patch: pytest.MonkeyPatch) -> NamePolicy:
    """Install `Leaky` as a distribution that all sites allow, named
    ``leaky_of_tests:Leaky``."""
    head = """
from dataclasses import dataclass
from typing import ClassVar, final
import torch
from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import Values
from fallow.core.values import Real
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import Budget, Memo, label_counts, selects
"""
    source = {f"{LEAKY}.py": f"{head}\n{inspect.getsource(Leaky)}"}
    install(folder, "leaky-of-tests", source, patch)
    return NamePolicy(allowed={"leaky-of-tests": distribution_digest("leaky-of-tests")})
