"""Test aggregates with noise at real sites: sites agree to the noise, their ledgers always
record its cost, and exact aggregates are rejected."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.refusal import Refusal
from fallow.data import Dataset
from fallow.deployment.building import build_study
from fallow.deployment.ledger import Ledger
from fallow.deployment.schema import Column, Schema
from fallow.deployment.site.agreement_text import describe_study, list_disclosures
from fallow.deployment.site.folder import SiteFolder, check_delta_of
from fallow.privacy.gaussian import costs_of
from fallow.privacy.ledger import Released
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from fallow.training.parts.adassp import SENSITIVITY, ZEROS
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.deployment.test_closed_form import listen
from tests.deployment.test_closed_form_killed import VICTIM, Killed, answering
from tests.deployment.test_serve import run_site_command

pytest.importorskip("opendp")

DELTA = 1e-5
NOISY = Spec("closed-form", {"delta": DELTA})
PRIVATE: dict[str, Any] = {
    "model": Spec("linear"),
    "training": NOISY,
    "encoder": Spec("identity"),
    "standardize": "none",
    "strategy": Spec("random"),
    "privacy": Privacy(epsilon=1.0),
    "initial": 5,
    "budget": 4,
    "rounds": 1,
    "score_rounds": 1,
    "cycles": 1,
    "dtype": "float64",
}
OF_TWO = sum(costs_of(2, 1.0, DELTA))


def hospitals(folder: Path, **changed: Any) -> Federation:
    config = ExperimentConfig("hospitals", **{**PRIVATE, **changed})
    return federation(folder, config, rows(NAMES[:3], classes=3))


def test_sites_agree_to_noise_without_secure_sums_and_are_told(tmp_path: Path) -> None:
    simulation = hospitals(tmp_path)
    study = describe_study(simulation.sites["basel"])
    sums = next(line for line in study if line.startswith("sums: noisy"))
    assert "differential privacy" in sums
    assert "epsilon 1 per release, delta 1e-05" in sums
    assert not any("can compute" in line for line in study)
    training = [
        function
        for part, function, *_ in list_disclosures(simulation.sites["basel"])
        if "train" in part
    ]
    assert training == ["noisy_totals"]
    simulation.close()


@pytest.mark.long
def test_each_close_is_charged_what_it_adds(tmp_path: Path) -> None:
    simulation = hospitals(tmp_path)
    assert simulation.program().go()
    for name in simulation.sites:
        assert simulation.ledgers[name].store.sum_spent() == pytest.approx(
            OF_TWO, rel=1e-12
        )
        assert simulation.ledgers[name].store.sum_spent_delta() == DELTA
    records = simulation.records()
    assert records[-1]["penalty"] > 0
    noisy = [row for row in records[-1]["revealed"] if row["function"] == "noisy_totals"]
    assert noisy[0]["epsilon"] == pytest.approx(OF_TWO)
    simulation.close()


@pytest.mark.long
def test_the_limit_of_a_site_holds_for_totals_too(tmp_path: Path) -> None:
    simulation = hospitals(tmp_path, privacy=Privacy(epsilon=1.0, total=1.2))
    with pytest.raises(RuntimeError, match=r"spent epsilon 1 of .*1\.2|replied to 'noisy"):
        simulation.program().go()
    for name in simulation.sites:
        assert simulation.ledgers[name].store.sum_spent() == 1.0
    simulation.close()


@pytest.mark.long
def test_what_was_spent_on_totals_survives_a_kill_at_any_point(tmp_path: Path) -> None:
    """Repeating the same instruction gives the same release: one cost and one reply."""
    simulation = hospitals(tmp_path)
    simulation.ledgers.pop(VICTIM).close()
    killed = Killed(simulation.sites[VICTIM], ("0/train/0/",))
    simulation.transport.alive[VICTIM] = killed.handle
    with closing(killed):
        assert simulation.program(answering(simulation)).go()
    assert sum(killed.deaths.values()) >= 4
    simulation.close()
    with closing(SiteFolder.open(simulation.sites[VICTIM].path).open_ledger()) as ledger:
        assert ledger.store.sum_spent() == pytest.approx(OF_TWO, rel=1e-12)
        assert ledger.store.sum_spent_delta() == DELTA


def release(
    key: str, *, epsilon: float = 0.1, delta: float = DELTA
) -> tuple[str, Released]:
    return key, Released(epsilon, "digest", {}, rho=0.01, delta=delta)


def test_delta_is_limited_over_all_runs(tmp_path: Path) -> None:
    """By default a site spends the delta of one run; a second run needs its consent."""
    ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, None, epsilon=5.0, delta=1.5e-5)
    store = ledger.store
    store.run = "first"
    store.spend("north", *release("0/train/0/0"))
    store.spend("north", *release("1/train/0/0", delta=0.0))
    store.run = "second"
    with pytest.raises(
        Refusal, match=r"spent delta 1e-05 of the 1\.5e-05 .* over all runs"
    ):
        store.spend("north", *release("0/train/0/0"))
    assert (store.sum_spent(), store.sum_spent_delta()) == (0.2, 1e-5)
    ledger.close()


def test_the_second_book_restores_delta_and_doubt_costs_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    limits: dict[str, Any] = {"epsilon": 5.0, "delta": 3e-5}
    ledger = Ledger(file, "north", 3, None, **limits)
    ledger.backup()
    ledger.store.run = "first"
    ledger.store.spend("north", *release("0/train/0/0"))
    ledger.close()
    (tmp_path / "ledger-backup.sqlite").replace(file)
    restored = Ledger(file, "north", 3, None, **limits)
    assert restored.store.sum_spent_delta() == 1e-5
    restored.store.exhaust_budget()
    assert restored.store.sum_spent_delta() == pytest.approx(3e-5, rel=1e-12)
    restored.close()


def test_a_site_refuses_a_delta_above_one_divided_by_its_examples(tmp_path: Path) -> None:
    loose = Spec("closed-form", {"delta": 0.01})
    with pytest.raises(ValueError, match=r"delta is 0\.01, above 1/1?\d\d"):
        federation(
            tmp_path,
            ExperimentConfig("hospitals", **{**PRIVATE, "training": loose}),
            rows(NAMES[:3], classes=3, per_site=200),
        )


def test_a_site_states_its_limit_of_delta(tmp_path: Path) -> None:
    simulation = hospitals(tmp_path)
    folder = simulation.sites["basel"]
    assert folder.delta == DELTA
    text = (folder.path / "site.toml").read_text()
    (folder.path / "site.toml").write_text(text.replace("# delta = 1e-05", "delta = 3e-5"))
    assert SiteFolder.open(folder.path).delta == 3e-5
    status = run_site_command("status", folder.path)
    assert "δ: 0 of 3e-05" in status
    small = replace(folder.settings, delta=1e-6)
    with pytest.raises(
        ValueError, match=r"a run of this study costs delta 1e-05, but site basel"
    ):
        check_delta_of(small, simulation.agreement, 24)
    simulation.close()


def test_a_site_promised_noise_answers_no_order_for_exact_totals(tmp_path: Path) -> None:
    simulation = hospitals(tmp_path)
    methods = build_study(simulation.agreement).methods
    contract = methods["training"].contract
    for function in ("totals", "left_out", "fitted", "class_counts", "center", "local"):
        assert contract.refusal(function, "sum") is not None
    simulation.close()


def test_without_delta_the_agreement_is_refused(tmp_path: Path) -> None:
    agreed = hospitals(tmp_path).agreement
    plain = replace(agreed, config=replace(agreed.config, training=Spec("closed-form")))
    with pytest.raises(ValueError, match="set its delta"):
        build_study(plain)


@pytest.mark.long
def test_behind_masks_the_noise_of_all_sites_is_in_the_total(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    simulation = hospitals(tmp_path, privacy=Privacy(epsilon=1.0, secure_sum=True))
    assert simulation.program().go()
    for name in simulation.sites:
        assert simulation.ledgers[name].store.sum_spent() == pytest.approx(
            OF_TWO, rel=1e-12
        )
    simulation.close()


def test_epsilon_follows_from_what_was_on_the_wire(tmp_path: Path) -> None:
    """Each release ends with zeros, which are sent as pure noise. Their spread is the scale
    of the noise, from which OpenDP derives the epsilon in the ledger."""
    dp = pytest.importorskip("opendp.prelude")
    simulation = hospitals(tmp_path)
    messages = listen(simulation)
    assert simulation.program().go()
    noise = []
    for key in ("0/train/0/0", "1/train/0/0"):
        noise += [reply["noisy"][-ZEROS:] for reply in messages[key].values()]
    scale = float(torch.cat(noise).std())  # of 1,536 numbers: to 2 %

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    release = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    both = dp.c.make_composition([release, release])
    for measured, cycles in ((release, 1), (both, 2)):
        profile = dp.c.make_zCDP_to_approxDP(measured).map(SENSITIVITY)
        booked = sum(costs_of(cycles, 1.0, DELTA))
        assert profile.epsilon(DELTA) == pytest.approx(booked, rel=0.08)
    for name in simulation.sites:
        assert simulation.ledgers[name].store.sum_spent() == pytest.approx(OF_TWO, rel=1e-9)
    simulation.close()


def clinical(low: float | None = 80.0) -> tuple[Dataset, Schema]:
    """Return examples in clinical units, and their schema with agreed ranges."""
    data = rows(NAMES[:3], classes=3)
    unit = torch.tensor([20.0, 1.0, 300.0, 0.01, 1.0])
    names = ("cholesterol", "creatinine", "platelets", "share", "potassium")
    data = replace(data, x=data.x * unit, x_test=data.x_test * unit, columns=names)
    top = data.x.abs().max(0).values.tolist()
    columns = [
        Column(name, "mg", low=-high, high=high)
        for name, high in zip(names, top, strict=True)
    ]
    columns[0] = replace(columns[0], low=low)
    return data, Schema("table", "classification", "y", data.classes, tuple(columns), (5,))


@pytest.mark.long
def test_a_table_in_clinical_units_is_scaled_by_agreed_ranges_beside_noise(
    tmp_path: Path,
) -> None:
    data, schema = clinical()
    config = ExperimentConfig("hospitals", **{**PRIVATE, "standardize": "auto"})
    simulation = federation(tmp_path, config, data, schema=schema)
    assert simulation.agreement.config.standardize == "ranges"
    assert simulation.program().go()
    functions = {row["function"] for row in simulation.records()[-1]["revealed"]}
    assert "noisy_totals" in functions
    assert not {"columns", "spread", "cells"} & functions
    high = schema.columns[0].high
    assert high is not None
    folder = simulation.sites["basel"].path
    scale = load_tree(folder / "model.safetensors", folder)["scale"]
    assert scale["mean"][0] == pytest.approx((80 + high) / 2)
    assert scale["std"][0] == pytest.approx(math.sqrt(5) * (high - 80) / 2)
    simulation.close()


@pytest.mark.parametrize(
    ("low", "encoder", "why"),
    [
        (None, "identity", "column 'cholesterol' has no finite low below high"),
        (80.0, "fourier", "the encoder fourier computes other features"),
    ],
)
def test_ranges_that_are_not_agreed_are_asked_for(
    low: float | None, encoder: str, why: str, tmp_path: Path
) -> None:
    data, schema = clinical(low)
    changed = {"standardize": "ranges", "encoder": Spec(encoder)}
    config = ExperimentConfig("hospitals", **{**PRIVATE, **changed})
    with pytest.raises(ValueError, match=f"standardize is 'ranges', but {why}"):
        federation(tmp_path, config, data, schema=schema)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            {"standardize": "federated"},
            "sends exact .* each column.* set standardize=ranges",
        ),
        ({"encoder": Spec("fourier")}, "its squares.* use an encoder that is not fitted"),
    ],
)
def test_exact_sums_over_all_examples_are_refused_beside_noise(
    changed: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"privacy.sums is 'noisy'.*{what}"):
        hospitals(tmp_path, **changed)
