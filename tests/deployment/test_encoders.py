"""Test encoders at real sites: agreement, requests, stored features and rejected values."""

from __future__ import annotations

import csv
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.names import NamePolicy, distribution_digest
from fallow.core.refusal import Refusal
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import Values
from fallow.deployment.agreement import Agreement
from fallow.deployment.annotators import MODEL
from fallow.deployment.building import build_study
from fallow.deployment.model_card import CARD
from fallow.deployment.site.agreement_text import list_disclosures
from fallow.deployment.site.host import FEATURES
from fallow.deployment.site.predict import predict_at
from fallow.deployment.study_file import read_agreement, write_agreement
from fallow.encoders import Fourier, Identity
from fallow.encoders.base import encode_rows, encoder_digest
from fallow.encoders.encoding import DIGEST, Encoding
from fallow.encoders.fourier import GAMMAS
from fallow.encoders.module import encoder_class
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec, name_of
from fallow.storage.features import DATA
from fallow.storage.files import load_tree
from tests.deployment.hosts import Leader, agreement, folder
from tests.deployment.simulations import Federation, federation, photos, rows
from tests.each import mark_long
from tests.keys import key_of
from tests.packages import forget, install

pytest.importorskip("cryptography")
PICTURES = ExperimentConfig(
    "photos",
    encoder=Spec("convolution", {"filters": 4, "patch": 3}),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("entropy"),
    initial=5,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
)
TABLE = "encoder=fourier:features=8"
MODULE = "encoders_sent_to_tests"
LENGTH = 1.4140625  # of four standardized columns, rounded


def features_of(simulation: Federation, site: str) -> dict[str, tuple[int, int]]:
    """Return the feature files of a site, with modification time and size."""
    result = simulation.sites[site].path.glob(f"{FEATURES}/*/{DATA}")
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in result}


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    result = Leader(folder(tmp_path, agreement("strategy=entropy", TABLE)))
    yield result
    result.ledger.close()


def next_second() -> float:
    """Return a clock for a second run. Names of runs have a resolution of one second, so a
    site could take either of two runs in the same second for the earlier one."""
    return time.time() + 1


# -- whole studies -------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "privacy",
    mark_long([Privacy(), Privacy(secure_sum=True)], [Privacy()]),
)
def test_pictures_are_encoded_at_their_sites(tmp_path: Path, privacy: Privacy) -> None:
    simulation = federation(tmp_path, replace(PICTURES, privacy=privacy), photos())
    assert simulation.program().go()
    states = [
        load_tree(result.path / MODEL, result.path)["encoder"]["state"]
        for result in simulation.sites.values()
    ]
    for state in states:
        assert state["filters"].shape == (4, 27)
        assert torch.equal(state["filters"], states[0]["filters"])
    revealed = {
        row["function"]: row["description"] for row in simulation.records()[-1]["revealed"]
    }
    assert "second moments of the patches" in revealed["patches"]
    assert revealed["encode"] == "nothing"
    assert "- Encoder: convolution:filters=4:patch=3, Convolution" in (
        simulation.coordinator_folder / CARD
    ).read_text(encoding="utf-8")
    simulation.close()


@pytest.mark.long
def test_a_process_that_is_started_again_finds_its_features(tmp_path: Path) -> None:
    simulation = federation(tmp_path, PICTURES, photos())
    assert simulation.program().go()
    before = features_of(simulation, "basel")
    width = 4 * 16 * 4  # bytes of the features of an example
    assert sorted(size for _, size in before.values()) == [6 * width, 14 * width]
    for path in (simulation.sites["basel"].path / FEATURES).rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    host = simulation.transport.handlers["basel"]
    assert host is not simulation.host("basel")
    again = simulation.again(tmp_path.with_name(f"{tmp_path.name}-again"))
    for name in again.sites:
        for file in features_of(again, name):
            os.utime(file, ns=(1, 1))
    again.coordinator_folder.rename(again.coordinator_folder.with_name("before"))
    assert again.program(clock=next_second).go()  # another run of the same study
    assert {when for when, _ in features_of(again, "basel").values()} == {1}
    again.close()
    simulation.close()


@pytest.mark.long
def test_a_damaged_file_of_features_is_made_anew(tmp_path: Path) -> None:
    simulation = federation(tmp_path, PICTURES, photos())
    assert simulation.program().go()
    scores = [record["accuracy"] for record in simulation.records()]
    again = simulation.again(tmp_path.with_name(f"{tmp_path.name}-again"))
    for name in again.sites:
        for file in features_of(again, name):
            Path(file).write_bytes(b"x" * Path(file).stat().st_size)
    again.coordinator_folder.rename(again.coordinator_folder.with_name("before"))
    again.away = set()
    assert again.program(clock=next_second).go()
    assert len(again.records()) == len(scores)
    assert b"xxxx" not in Path(next(iter(features_of(again, "basel")))).read_bytes()
    again.close()
    simulation.close()


@pytest.mark.long
def test_a_site_predicts_new_rows_by_its_encoder(tmp_path: Path) -> None:
    config = replace(PICTURES, encoder=Spec("fourier", {"features": 40}))
    data = rows()
    simulation = federation(tmp_path, config, data)
    assert simulation.program().go()
    site = simulation.sites["basel"]
    record = simulation.records()[-1]
    with open(tmp_path / "basel-test.csv", encoding="utf-8") as file:
        true = [line["y"] for line in csv.DictReader(file)]
    result = predict_at(site.path, tmp_path / "basel-test.csv", tmp_path / "out.csv")
    with open(result.path, encoding="utf-8") as file:
        output = [line["prediction"] for line in csv.DictReader(file)]
    hits = np.mean([one == other for one, other in zip(true, output, strict=True)])
    assert hits == pytest.approx(record["per_site"]["basel"])
    simulation.close()


@pytest.mark.long
def test_labels_choose_a_field_at_real_sites_behind_secure_sums(tmp_path: Path) -> None:
    config = replace(
        PICTURES,
        encoder=Spec("fourier", {"features": 20, "gamma": "auto"}),
        privacy=Privacy(secure_sum=True),
    )
    simulation = federation(tmp_path, config, rows())
    assert simulation.program().go()
    states = [
        load_tree(result.path / MODEL, result.path)["encoder"]["state"]
        for result in simulation.sites.values()
    ]
    for state in states:
        assert set(state) == {"gamma", "length", "center", "spread"}
        assert float(state["length"]) == float(states[0]["length"])
        assert float(state["gamma"]) in GAMMAS
    revealed = {
        row["function"]: row["description"] for row in simulation.records()[-1]["revealed"]
    }
    assert "for each candidate of the encoder" in revealed["products"]
    assert "for each candidate of the encoder" in revealed["left_out"]
    simulation.close()


# -- agreement -----------------------------------------------------------------------------


def test_an_agreement_names_its_encoder_and_has_another_digest(tmp_path: Path) -> None:
    plain, encoded = agreement("strategy=entropy"), agreement("strategy=entropy", TABLE)
    assert encoded.digest != plain.digest
    write_agreement(tmp_path / "study.toml", encoded)
    text = (tmp_path / "study.toml").read_text(encoding="utf-8")
    assert "# Encoder of the examples, fitted on aggregates" in text
    back = read_agreement(tmp_path / "study.toml")
    assert back.config.encoder == Spec("fourier", {"features": 8})
    assert back.digest == encoded.digest
    write_agreement(tmp_path / "plain.toml", plain)
    assert "encoder" not in (tmp_path / "plain.toml").read_text(encoding="utf-8")


def test_a_person_reads_what_an_encoder_tells(leader: Leader) -> None:
    output = [line for line in list_disclosures(leader.site) if line[0] == "encoder"]
    assert [tuple(line) for line in output] == [
        (
            "encoder",
            "moments",
            "aggregates of numbers of examples, of each column and of its squares",
            "coordinator, each contribution",
            "aggregates",
        )
    ]


# -- rejected values -----------------------------------------------------------------------


def asked(leader: Leader, key: str, owner: str, step: Step) -> str | None:
    return leader.send(
        leader.instruction(Request(key_of(key), owner, 0, 0, (step,)))
    ).refused


def test_totals_are_told_once(leader: Leader) -> None:
    sums = Step("sum", "moments", {})
    instruction = leader.instruction(
        Request(key_of("0/initial/encoder/0"), "encoder", 0, 0, (sums,))
    )
    reply = leader.send(instruction)
    assert reply.refused is None
    assert set(reply.body) == {"rows", "columns", "squares"}
    leader.count(instruction)
    refused = asked(leader, "0/initial/encoder/1", "encoder", sums)
    assert refused is not None
    assert "requests it at most 1 times" in refused


def test_totals_leave_by_sums_alone(leader: Leader) -> None:
    refused = asked(leader, "0/initial/encoder/0", "encoder", Step("each", "moments", {}))
    assert refused is not None
    assert "allows it only by sum" in refused


def test_a_study_without_an_encoder_asks_nothing_of_one(tmp_path: Path) -> None:
    plain = Leader(folder(tmp_path, agreement("strategy=entropy")))
    refused = asked(plain, "0/initial/encoder/0", "encoder", Step("sum", "moments", {}))
    assert refused is not None
    assert "leads to no step 0/initial/encoder" in refused
    plain.ledger.close()


def test_a_choice_by_labels_needs_secure_sums(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="chosen by labels, which needs secure aggregation"
    ):
        build_study(agreement("strategy=entropy", f"{TABLE}:gamma=auto"))
    shown = ("training=closed-form:shown=parts", "rounds=1", "score_rounds=1")
    agreed = agreement("strategy=entropy", f"{TABLE}:gamma=auto", "model=linear", *shown)
    leader = Leader(folder(tmp_path, agreed))
    output = {line[1]: line[2] for line in list_disclosures(leader.site)}
    assert "for each candidate of the encoder" in output["products"]
    value: Values = {DIGEST: "0" * 32}
    step = Step("keep", "encode", value)
    refused = asked(leader, "0/initial/encode/0", "encoding", step)
    assert refused is not None
    assert "leads to no step 0/initial/encode " in refused
    leader.ledger.close()


def test_a_study_whose_fields_are_given_has_no_choice_by_labels(leader: Leader) -> None:
    value: Values = {DIGEST: encoder_digest(Fourier(features=8))}
    step = Step("keep", "encode", value)
    refused = asked(leader, "0/tuned/encode/0", "encoding", step)
    assert refused is not None
    assert "leads to no step 0/tuned/encode " in refused


def test_units_of_features_come_after_the_encoder(leader: Leader) -> None:
    units: Values = {"mean": torch.zeros(8), "std": torch.ones(8)}
    step = Step("keep", "features", units)
    assert asked(leader, "0/initial/features/0", "scaling", step) is None
    refused = asked(leader, "0/initial/encoder/0", "encoder", Step("sum", "moments", {}))
    assert refused is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({DIGEST: "0" * 32}, "than the coordinator, or other weights"),
        ({"length": None}, "cannot encode its examples with the received state"),
        ({"length": torch.tensor(torch.nan)}, "NaN or infinite"),
        ({"center": torch.zeros(7)}, "center has the shape (7,) and not (4,)"),
    ],
)
def test_a_site_takes_nothing_that_it_cannot_encode_by(
    leader: Leader, change: Values, words: str
) -> None:
    encoder = Fourier(features=8)
    args: Values = {
        DIGEST: encoder_digest(encoder),
        "length": torch.tensor(LENGTH),
        "center": torch.zeros(4),
        "spread": torch.ones(4),
        **change,
    }
    arguments: Values = {name: value for name, value in args.items() if value is not None}
    refused = asked(
        leader, "0/initial/encode/0", "encoding", Step("keep", "encode", arguments)
    )
    assert refused is not None
    assert words in refused
    well = {**arguments, DIGEST: args[DIGEST]} | {
        DIGEST: encoder_digest(encoder),
        "length": torch.tensor(LENGTH),
        "center": torch.zeros(4),
    }
    assert (
        asked(leader, "0/initial/encode/0", "encoding", Step("keep", "encode", well))
        is None
    )


def test_a_refused_encoder_says_nothing_of_what_the_site_has() -> None:
    encoding = Encoding(Identity(), (3,))
    with pytest.raises(Refusal, match="another version of Identity") as refused:
        encoding.check("basel", {DIGEST: "0" * 32})
    own = encoder_digest(Identity())
    assert own[:4] not in str(refused.value)


# -- custom networks -----------------------------------------------------------------------

NETWORK = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
import torch
from torch import nn
from fallow.core.contract import Contract

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        with torch.no_grad():
            self.body.weight.copy_(torch.arange(24.0).reshape(6, 4).sin() * {scale})
            self.body.bias.zero_()

    def embed(self, x):
        return self.body(x.flatten(1)).relu()

@dataclass(frozen=True)
class Frozen:
    contract: ClassVar[Contract] = Contract("Frozen", "-", 0)
    net: ClassVar[Net] = Net().eval()

    def width(self, shape):
        return 6

    def fit(self, ask, shape):
        return {{}}

    def encode(self, x, state):
        return self.net.embed(x.float()).detach()

    def weights_digest(self):
        return str(self.net.body.weight.detach().sum().item())
"""
"""Source of an encoder with weights in a separate distribution."""


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agreement]:
    """Return a study whose encoder is a custom module that all parties allow."""
    source = {f"{MODULE}.py": NETWORK.format(scale=1.0)}
    install(tmp_path / "installed", "sent-encoder", source, monkeypatch)
    allowed = {"sent-encoder": distribution_digest("sent-encoder")}
    named = f"encoder={MODULE}:Frozen"
    yield agreement("strategy=entropy", named, names=NamePolicy(allowed=allowed))
    forget(MODULE)


def test_a_module_of_an_allowed_distribution_encodes_at_a_site(
    frozen: Agreement, tmp_path: Path
) -> None:
    leader = Leader(folder(tmp_path, frozen, allow=dict(frozen.names.allowed)))
    encoder = build_study(frozen).encoder
    assert encoder is not None
    value: Values = {DIGEST: encoder_digest(encoder)}
    step = Step("keep", "encode", value)
    assert asked(leader, "0/initial/encode/0", "encoding", step) is None
    site = leader.host._local_site()
    assert torch.equal(site.seen[:], encode_rows(encoder, site.x, {}))
    assert site.seen[:].shape == (len(site.x), 6)
    leader.ledger.close()


def test_a_site_with_another_module_refuses_before_anything_is_encoded(
    frozen: Agreement, tmp_path: Path
) -> None:
    leader = Leader(folder(tmp_path, frozen, allow=dict(frozen.names.allowed)))
    value: Values = {DIGEST: "1" * 32}
    step = Step("keep", "encode", value)
    refused = asked(leader, "0/initial/encode/0", "encoding", step)
    assert refused is not None
    assert "another version of Frozen than the coordinator, or other weights" in refused
    leader.ledger.close()


def test_a_module_that_nobody_allowed_is_never_imported(
    frozen: Agreement, tmp_path: Path
) -> None:
    for names in (NamePolicy(), NamePolicy(allowed={"sent-encoder": f"sha256:{'0' * 64}"})):
        with pytest.raises(ValueError, match=r"names code|digest"):
            build_study(replace(frozen, names=names))


def test_a_module_from_somebodys_memory_is_no_encoder_of_a_real_study() -> None:
    name = name_of(encoder_class(torch.nn.Linear(4, 2)))
    assert name.startswith("given:")
    with pytest.raises(ValueError, match="given"):
        build_study(agreement("strategy=entropy", f"encoder={name}"))
