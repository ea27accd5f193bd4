"""Test a custom query strategy at real sites over HTTPS; one file declares all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.core.names import NamePolicy, distribution_digest
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.deployment.agreement import Timeouts
from fallow.deployment.coordinator.program import Program
from fallow.deployment.ledger import Ledger
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.host import Host
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.transport.envelope import open_reply, sign_message
from fallow.transport.https import ConnectionSettings, HttpsNode, HttpsTransport, Listening
from fallow.transport.tls import new_tls
from tests.deployment.planted import SITES, people, planted
from tests.deployment.simulations import Federation
from tests.packages import install

pytest.importorskip("httpx")

STRATEGY = '''
"""Tides: label where the water is low."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch

import fallow as fl
from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.values import Count, LabelCount, NonNegative, Share
from fallow.core.view import SelectedExamples


@final
@dataclass(frozen=True)
class Tides:
    contract: ClassVar[Contract] = Contract("Tides")

    def query(self, ask, budget, memo):
        swell = ask.sum(self.measure)["swell"]
        ask.sum(self.sound, ebb=swell / (1 + swell.sum()))
        ask.keep(self.select, to={site: {"n": n} for site, n in budget.items() if n})
        return memo

    @client.sum(
        "aggregates of label shares, and the number of unlabeled examples",
        returns={"swell": Share("classes"), "boats": Count(of="rows")},
    )
    def measure(self, view):
        counts = view.counts
        return {"swell": counts / counts.sum().clamp_min(1), "boats": float(view.pool)}

    @client.sum(
        "squared distance of the shares from those of all sites",
        returns={"keel": NonNegative(of="labels")},
        takes={"ebb": Share("classes")},
    )
    def sound(self, view, ebb):
        shares = view.counts / view.counts.sum().clamp_min(1)
        return {"keel": float((shares - ebb).square().sum())}

    @client.keep("number of selected examples", takes={"n": LabelCount()})
    def select(self, view, n):
        return SelectedExamples(torch.arange(n))
'''
UNDECLARED = STRATEGY.replace(', takes={"n": LabelCount()}', "")
EXPERIMENT = ExperimentConfig(
    "alps",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("tides_of_tests:Tides"),
    initial=4,
    budget=1,
    rounds=1,
    cycles=4,
    score_rounds=1,
)
WAITS = Timeouts(timeout=60.0, quorum=2, patience=120.0, deadline=3600.0)
FAR = 2**62  # added to a masked number: a quarter of the range

Changes = dict[str, Callable[[Any], Any]]
"""Changes to the fields of a reply, as made by a hostile site."""
HOSTILE: list[Changes] = [
    {"swell": lambda value: value + 7},
    {"boats": lambda value: 1e6},
    {"keel": lambda value: -9.0},
    {"swell": lambda value: value[:1]},
]
"""Changes in the query of each cycle."""


@dataclass
class Process:
    """Run a site like its process: in one thread with its own ledger.

    hostile: changes, by cycle, to the fields of its first reply that has them.
    """

    folder: SiteFolder
    hostile: list[Changes]
    host: Host | None = None
    ledger: Ledger | None = None

    def handle(self, blob: bytes) -> bytes:
        if self.host is None:
            self.ledger = self.folder.open_ledger()
            self.host = Host(self.folder, self.ledger)
        output = self.host.handle(blob)
        if not self.hostile:
            return output
        keys = self.folder.keys
        reply = open_reply(keys.verify, output, self.folder.name)
        key = reply.key
        if reply.refused is not None or key is None or key.step != "query":
            return output
        changes = self.hostile[key.cycle]
        if not reply.body.keys() >= changes.keys():
            return output
        answer = dict(reply.body)
        for name, change in changes.items():
            answer[name] = change(answer[name])
        self.hostile[key.cycle] = {"spoiled": abs}  # only once
        return sign_message(keys.sign, replace(reply, body=answer))


def install_strategy(folder: Path, source: str, patch: pytest.MonkeyPatch) -> NamePolicy:
    install(folder, "tides-of-tests", {"tides_of_tests.py": source}, patch)
    return NamePolicy(allowed={"tides-of-tests": distribution_digest("tides-of-tests")})


@contextmanager
def over_https(
    simulation: Federation, processes: dict[str, Process]
) -> Iterator[HttpsTransport]:
    """Yield the coordinator's transport, with a connected node for each site."""
    tls = new_tls(simulation.folder / "tls")
    study = simulation.agreement.digest
    events: list[Event] = []
    listening = Listening("127.0.0.1:0", tls, None)
    transport = HttpsTransport(
        listening, study, simulation.keys.sites, events.append
    ).start()
    with ExitStack() as stack:
        stack.callback(transport.close)
        assert transport.wait_until_there(20.0)
        for name, process in processes.items():
            calling = ConnectionSettings(f"127.0.0.1:{transport.port}", tls.authority)
            secret = process.folder.keys.sign
            node = HttpsNode(calling, name, study, secret, process.handle)
            node.start()
            stack.callback(node.stop)
        yield transport


def run_study(simulation: Federation, hostile: list[Changes]) -> None:
    processes = {name: Process(folder, []) for name, folder in simulation.sites.items()}
    processes[SITES[2]].hostile = hostile
    program: list[bool] = []
    with over_https(simulation, processes) as transport:
        coordinator = Program(
            simulation.coordinator_folder,
            simulation.agreement,
            transport,
            simulation.keys,
            people(simulation),
            poll=0.05,
            pages=False,
        )
        program.append(coordinator.go())
    assert program == [True]
    assert [record["cycle"] for record in simulation.records()][
        -1
    ] == simulation.agreement.config.cycles


@pytest.mark.long
def test_a_strategy_of_one_file_runs_and_hostile_replies_to_it_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = install_strategy(tmp_path / "installed", STRATEGY, monkeypatch)
    with closing(planted(tmp_path, EXPERIMENT, waits=WAITS, policy=policy)) as simulation:
        run_study(simulation, HOSTILE)
        refusals = [
            (event["key"], event["reason"]) for event in simulation.list_events("refused")
        ]
        assert {event["site"] for event in simulation.list_events("refused")} == {SITES[2]}
    assert refusals == [
        ("0/query/0", "swell is above 1, which is impossible for a fraction"),
        ("1/query/0", "boats is 1000000, and the site has 27 rows"),
        ("2/query/1", "keel is below 0, which is impossible for a count or a square"),
        (
            "3/query/0",
            "swell has the shape (1,) and not (2,): all sites must use one model",
        ),
    ]


@pytest.mark.long
def test_hostile_contributions_to_sums_of_a_strategy_of_one_file_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = install_strategy(tmp_path / "installed", STRATEGY, monkeypatch)
    config = replace(EXPERIMENT, privacy=Privacy(secure_sum=True), cycles=3)
    hostile: list[Changes] = [
        {"swell": lambda value: value + FAR},
        {"boats": lambda value: value + FAR},
        {"keel": lambda value: value - FAR},
    ]
    with closing(planted(tmp_path, config, policy=policy)) as simulation:
        run_study(simulation, hostile)
        reasons = [event["reason"] for event in simulation.list_events("implausible")]
        assert simulation.list_events("refused") == []
    for field, why in zip(("swell", "boats", "keel"), reasons, strict=True):
        assert f"is impossible: {field} is " in why
        assert why.endswith("it is requested again")


def test_a_function_whose_arguments_are_not_declared_is_refused_at_real_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a declaration, it is unknown which argument is a number of labels."""
    policy = install_strategy(tmp_path / "installed", UNDECLARED, monkeypatch)
    why = (
        r"Tides does not declare the fields of 'select'.* such as "
        r"@client.keep\('number of selected examples', takes=\{...\}\)"
    )
    with pytest.raises(ValueError, match=why):
        planted(tmp_path, EXPERIMENT, policy=policy)
