"""Hospitals in one process: folders of sites with tables, annotators and a coordinator."""

from __future__ import annotations

import csv
import shutil
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fallow.core.events import Event
from fallow.core.exchange_key import ExchangeKey
from fallow.core.missing import Missing
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data import Dataset
from fallow.deployment.agreement import Agreement, Timeouts, at_sites
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.building import build_study
from fallow.deployment.coordinator.program import Program
from fallow.deployment.ledger import Ledger
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.host import Host
from fallow.deployment.site.schedule import RunSchedule
from fallow.deployment.study_file import write_agreement
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.reading import read_study
from fallow.transport.gathering import Keys, SealKey
from tests.deployment.loopback import Faults, Loopback

NAMES = ("basel", "chur", "davos", "genf")
FEATURES = 5
WAITS = Timeouts(timeout=30.0, patience=60.0, deadline=3600.0)
OPTIONAL = ("describe", "targets", "initial", "ask", "close")
"""Steps before training that depend on labels, or on a command."""
EventHandler = Callable[[Event], None]


def rows(sites: tuple[str, ...] = NAMES, classes: int = 3, per_site: int = 24) -> Dataset:
    """Return examples with unscaled features, of which a third are test examples."""
    draw = np.random.default_rng(0)
    group = np.concatenate(
        [np.full(per_site + 3 * (len(sites) - i), i) for i in range(len(sites))]
    )
    y = draw.integers(0, max(classes, 2), len(group))
    x = (
        3 * draw.normal(size=(len(group), FEATURES))
        + 4 * np.eye(max(classes, 2), FEATURES)[y]
        + 7
    )
    x = x.astype(np.float32)
    target = x @ np.arange(1, FEATURES + 1) + draw.normal(size=len(x))
    labels = torch.from_numpy(y) if classes else torch.from_numpy(target.astype(np.float32))
    test = np.arange(len(group)) % 3 == 2
    features = torch.from_numpy(x)
    sites_of = torch.from_numpy(group)
    columns = tuple(f"x{i}" for i in range(FEATURES))
    return Dataset(
        "hospitals",
        features[~test],
        labels[~test],
        features[test],
        labels[test],
        classes=tuple(f"class {c}" for c in range(classes)),
        sites=sites_of[~test],
        sites_test=sites_of[test],
        site_names=sites,
        columns=columns,
    )


def ward(sites: tuple[str, ...] = NAMES[:3], per_site: int = 32) -> Dataset:
    """Return examples with empty cells, of which a third are test examples."""
    draw = np.random.default_rng(3)
    n = len(sites) * per_site
    y = draw.integers(0, 2, n)
    group = np.repeat(np.arange(len(sites)), per_site)
    # x0, x1, x2, kind=a, kind=b, kind=c, two missing-value indicators
    x = np.zeros((n, 8), dtype=np.float32)
    x[:, :3] = 3 * draw.normal(size=(n, 3)) + 4 * y[:, None] + 7
    x[np.arange(n), 3 + draw.choice(3, n, p=(0.2, 0.5, 0.3))] = 1.0
    # later sites have more empty cells, because hospitals differ in this
    lacks_number = draw.random(n) < 0.1 + 0.2 * group
    lacks_text = draw.random(n) < 0.2
    x[lacks_number, 1] = np.nan
    x[lacks_text, 3:6] = np.nan
    x[:, 6] = lacks_number
    x[:, 7] = lacks_text
    test = np.arange(n) % 3 == 2
    marks = (("x1_missing", "x1"), ("kind_missing", "kind"))
    measured = ("x0", "x1", "x2", "kind=a", "kind=b", "kind=c")
    return split_tests(
        x,
        y,
        group,
        test,
        ("no", "yes"),
        sites,
        columns=(*measured, "x1_missing", "kind_missing"),
        missing=Missing(levels=((3, 6),), marks=marks),
    )


def split_tests(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    group: npt.NDArray[np.int64],
    test: npt.NDArray[np.bool_],
    classes: tuple[str, ...],
    sites: tuple[str, ...],
    columns: tuple[str, ...] = (),
    missing: Missing | None = None,
) -> Dataset:
    """Return the examples of all sites as a dataset. group: (n,) site of each example;
    test: (n,) whether it is a test example."""
    features = torch.from_numpy(x)
    labels = torch.from_numpy(y)
    sites_of = torch.from_numpy(group)
    return Dataset(
        "hospitals",
        features[~test],
        labels[~test],
        features[test],
        labels[test],
        classes=classes,
        sites=sites_of[~test],
        sites_test=sites_of[test],
        site_names=sites,
        columns=columns,
        missing=missing,
    )


def photos(sites: tuple[str, ...] = NAMES[:3], per_site: int = 20) -> Dataset:
    """Return small color images with two classes, of which a third are test examples."""
    draw = np.random.default_rng(1)
    y = np.arange(len(sites) * per_site) % 2
    group = np.repeat(np.arange(len(sites)), per_site)
    x = draw.normal(size=(len(y), 3, 8, 8)) + 0.8 * y[:, None, None, None]
    x[:, :, 1:] += x[:, :, :-1]
    test = np.arange(len(y)) % 3 == 2
    return split_tests(x.astype(np.float32), y, group, test, ("dark", "light"), sites)


def schema_for(data: Dataset) -> Schema:
    task = data.task
    if not data.columns:
        return Schema("arrays", task, "y", data.classes, (), tuple(data.x.shape[1:]))
    if data.missing is not None:
        ward_columns = (
            Column("x0", "mg"),
            Column("x1", "mg", may_be_empty=True),
            Column("x2", "mg"),
            Column("kind", values=("a", "b", "c"), may_be_empty=True),
        )
        return Schema("table", task, "y", data.classes, ward_columns, (8,))
    columns = tuple(Column(name, "mg") for name in data.columns)
    width = (len(columns),)
    return Schema("table", task, "y", data.classes, columns, width, labels=data.labels)


@dataclass
class Federation:
    """Run real sites in one process over a loopback transport.

    ``annotate``: function that returns the label of a row of a site, or None for "cannot tell"
    (default: the true label). ``away``: sites whose annotators do not answer. ``annotators``:
    their names at every site.
    """

    folder: Path
    agreement: Agreement
    data: Dataset
    secret: bytes
    sites: dict[str, SiteFolder]
    faults: Faults = Faults()
    away: set[str] = field(default_factory=set)
    annotate: Callable[[str, int], float | None] | None = None
    annotators: tuple[str, ...] = ("Ann",)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.transport = Loopback(
            {s: self.host(s) for s in self.sites}, self.faults, restart=self.host
        )

    @property
    def coordinator_folder(self) -> Path:
        return self.folder / "coordinator"

    def host(self, site: str) -> Callable[[bytes], bytes]:
        """Return a new process of the site, which restores its state from its ledger."""
        if site in self.ledgers:
            self.ledgers[site].close()
        self.ledgers[site] = self.sites[site].open_ledger()
        return Host(self.sites[site], self.ledgers[site]).handle

    @property
    def keys(self) -> Keys:
        verify = {s: folder.keys.verify for s, folder in self.sites.items()}
        seals: dict[str, SealKey] = {}
        for site, folder in self.sites.items():
            signature = folder.keys.sign_seal(self.agreement.digest, site)
            seals[site] = SealKey(folder.keys.seal_public, b64decode(signature))
        return Keys(self.secret, verify, seals)

    def truth(self, site: str, row: int) -> float:
        assert self.data.sites is not None
        at = (self.data.sites == self.data.site_names.index(site)).nonzero().squeeze(1)
        return float(self.data.y[at[row]])

    def label(self, event: Event) -> None:
        """Answer all open labeling tasks when the coordinator checks for labels."""
        self.events.append(event)
        if event["event"] == "labels":
            for site in self.sites.keys() - self.away:
                for question in self.ledgers[site].tasks(state="open"):
                    for name in self.annotators[: question.needed]:
                        self.ledgers[site].answer(
                            question.row, self.label_of(site, question.row), name
                        )

    def label_of(self, site: str, row: int) -> float | None:
        return self.annotate(site, row) if self.annotate else self.truth(site, row)

    def program(self, notify: EventHandler | None = None, **more: Any) -> Program:
        details: dict[str, Any] = {
            "poll": 0.0,
            "ticks": self.transport.clock,
            "pages": False,
            **more,
        }
        return Program(
            self.coordinator_folder,
            self.agreement,
            self.transport,
            self.keys,
            notify or self.label,
            **details,
        )

    def labels(self) -> dict[str, list[Any]]:
        """Return the current ledger lines of every site."""
        return {
            site: ledger.store.load_labels(site)
            for site, ledger in sorted(self.ledgers.items())
        }

    def bought(self, cycle: int) -> dict[str, int]:
        """Return the number of labels that each site acquired in a cycle."""
        labels = self.labels().items()
        return {site: sum(label.cycle == cycle for label in own) for site, own in labels}

    def records(self) -> list[dict[str, Any]]:
        (cell,) = read_study(self.coordinator_folder).cells
        return [dict(record) for record in cell.records]

    def close(self) -> None:
        for ledger in self.ledgers.values():
            ledger.close()

    def again(self, folder: Path) -> Federation:
        """Return the same sites and coordinator in a copy of the folder."""
        shutil.copytree(self.folder, folder)
        sites = {name: SiteFolder.open(folder / name) for name in self.sites}
        return Federation(folder, self.agreement, self.data, self.secret, sites)

    def list_events(self, event: str) -> list[Event]:
        return [result for result in self.events if result["event"] == event]


NOTHING_CONFIRMED: Mapping[str, tuple[str, ...]] = {}


def federation(
    folder: Path,
    config: ExperimentConfig,
    data: Dataset | None = None,
    waits: Timeouts = WAITS,
    seed: int = 0,
    labeled: Mapping[str, int] | None = None,
    plan: AnswerPlan = SINGLE,
    schema: Schema | None = None,
    confirmed: Mapping[str, tuple[str, ...]] = NOTHING_CONFIRMED,
    **more: Any,
) -> Federation:
    """Create the folders of sites and the coordinator's keys for ``config``; the first
    ``labeled`` rows of each site come with a label.  ``confirmed``: that setting by site."""
    data = data or rows()
    schema = schema or schema_for(data)
    names = data.site_names
    secret = new_signing_key()
    agreed = Agreement(
        "hospitals",
        at_sites(config, "hospitals", len(names), schema),
        schema,
        names,
        verify_key(secret),
        seed,
        waits,
        plan=plan,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_agreement(folder / "study.toml", agreed)
    sites = {
        name: _site(
            folder, data, name, (labeled or {}).get(name, 0), confirmed.get(name, ())
        )
        for name in names
    }
    return Federation(folder, agreed, data, secret, sites, **more)


TINY = ExperimentConfig(
    "tiny",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("entropy"),
    initial=4,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
)


def tiny(folder: Path, config: ExperimentConfig = TINY, **more: Any) -> Federation:
    """Return three sites and the shortest possible study."""
    return federation(folder, config, rows(NAMES[:3]), **more)


def _cells(data: Dataset, row: torch.Tensor) -> list[str]:
    """Format a row (d,) as the cells of a file."""
    if data.missing is None:
        return [repr(value) for value in row.tolist()]
    cells = ["" if np.isnan(value) else repr(value) for value in row[:3].tolist()]
    kind = row[3:6]
    return [*cells, "" if bool(kind.isnan().any()) else "abc"[int(kind.argmax())]]


def _site(
    folder: Path, data: Dataset, name: str, labeled: int, confirmed: tuple[str, ...]
) -> SiteFolder:
    files = []
    parts = {
        "rows": (data.x, data.y, data.sites),
        "test": (data.x_test, data.y_test, data.sites_test),
    }
    for part, (x, y, sites_of) in parts.items():
        assert sites_of is not None
        at = (sites_of == data.site_names.index(name)).nonzero().squeeze(1).tolist()
        known = len(at) if part == "test" else labeled
        if not data.columns:
            files.append(folder / f"{name}-{part}.npz")
            words = [data.classes[int(y[row])] for row in at]
            output = [word if i < known else "" for i, word in enumerate(words)]
            np.savez(files[-1], x=x[at].numpy(), y=np.array(output))
            continue
        files.append(folder / f"{name}-{part}.csv")
        with files[-1].open("w", newline="") as file:
            lines = csv.writer(file)
            names = [column.name for column in schema_for(data).columns]
            lines.writerow([*names, "y"])
            for i, row in enumerate(at):
                word = repr(float(y[row]))
                if schema_for(data).outcomes:
                    word = schema_for(data).words(float(y[row]))
                lines.writerow([*_cells(data, x[row]), word if i < known else ""])
    return SiteFolder.create(
        folder / name,
        folder / "study.toml",
        name=name,
        data=str(files[0]),
        test=str(files[1]),
        confirmed=confirmed,
    )


def check_order(simulation: Federation, optional: tuple[str, ...] = OPTIONAL) -> None:
    """Check that the sites' schedule has exactly the exchanges of the run, in their order."""
    made = build_study(simulation.agreement)
    schedule = RunSchedule(simulation.agreement.config, made.methods)
    planned = list(schedule.list_exchanges())
    performed: set[ExchangeKey] = set()
    for ledger in simulation.ledgers.values():
        run = str(ledger.instructions.latest_run())
        keys = [key.first for key in ledger.instructions.load_every_key(run)]
        performed.update(keys)
        ranks = [planned.index(key) for key in keys]
        assert ranks == sorted(ranks)
    for key in planned:
        is_optional = key.phase != "query" and key.step in optional
        assert key in performed or is_optional, key
