"""Test reading and writing of agreements, and which changes affect the digest."""

from __future__ import annotations

import re
import tomllib
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fallow.configs.find import load_configs
from fallow.core.streams import stream
from fallow.deployment.agreement import Agreement, Timeouts, at_sites
from fallow.deployment.building import build_study
from fallow.deployment.schema import Schema
from fallow.deployment.site.agreement_text import describe_planned
from fallow.deployment.study_file import (
    agreement_from,
    agreement_text,
    read_agreement,
    write_agreement,
)
from fallow.encoders import Auto
from fallow.experiment.simulation import build_environment
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.sites.store import MemoryStore
from fallow.transport.tls import new_tls
from tests.deployment.agreed import TABLE, agreed
from tests.each import each_of

KEY = b64encode(agreed().coordinator).decode()
NUMBERS = replace(TABLE, task="regression", classes=(), unit="mmHg")


def written(path: Path, old: str, new: str) -> Path:
    """Write a small agreement with one text replaced by another."""
    text = agreement_text(agreed())
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


@pytest.mark.long
def test_what_is_written_is_read_again_for_every_recipe() -> None:
    for config in load_configs().values():
        schema = NUMBERS if config.name.startswith("fale") else TABLE
        real = replace(config, flip=0, target_scale="labeled")
        sites = ("east", "north", "south")
        agreement = Agreement(
            "hearts", at_sites(real, "hearts", 3, schema), schema, sites, b"k" * 32
        )
        again = agreement_from(tomllib.loads(agreement_text(agreement)))
        assert again == agreement
        assert again.digest == agreement.digest


def test_what_a_training_method_brings_along_is_written_where_it_is_otherwise() -> None:
    solved = agreed("training=closed-form")
    config = replace(solved.config, encoder=Spec("identity"), score_rounds=5)
    other = replace(solved, config=config)
    for details in (solved, other):
        again = agreement_from(tomllib.loads(agreement_text(details)))
        assert again.digest == details.digest
    without = replace(solved, config=replace(config, encoder=None))
    with pytest.raises(ValueError, match=r"encoder is None, which TOML .* 'auto'"):
        agreement_text(without)


def test_a_file_has_the_whole_agreement(tmp_path: Path) -> None:
    write_agreement(tmp_path / "study.toml", agreed("strategy=ahfal:tau=15"))
    assert read_agreement(tmp_path / "study.toml") == agreed("strategy=ahfal:tau=15")


def test_a_file_names_the_certificate_of_the_coordinators_machine(tmp_path: Path) -> None:
    one, two = (new_tls(tmp_path / n).authority.read_text().strip() for n in ("one", "two"))
    write_agreement(tmp_path / "study.toml", agreed(authority=one))
    assert read_agreement(tmp_path / "study.toml") == agreed(authority=one)
    digests = {agreed(authority=text).digest for text in (one, two, None)}
    assert len(digests) == 3


@pytest.mark.parametrize(
    "other",
    [
        agreed("strategy=entropy"),
        agreed("privacy.epsilon=1.0"),
        agreed(seed=1),
        agreed(sites=("north", "west")),
        agreed(coordinator=b"l" * 32),
        agreed(waits=Timeouts(quorum=2)),
        agreed(schema=replace(TABLE, classes=("yes", "no"))),
    ],
)
def test_what_changes_results_or_reveals_more_changes_the_digest(other: Agreement) -> None:
    assert other.digest != agreed().digest


def test_lengths_of_time_may_change_while_a_study_runs() -> None:
    assert (
        agreed(waits=Timeouts(quorum=1, timeout=1, patience=2, deadline=3)).digest
        == agreed().digest
    )


def test_settings_about_data_and_comparisons_play_no_part() -> None:
    base = ExperimentConfig(
        "a", title="On digits", sites=7, rows=100, test_rows=10, label="y", seeds=4
    )
    plain = ExperimentConfig("b")
    assert at_sites(base, "hearts", 2, TABLE) == at_sites(plain, "hearts", 2, TABLE)


@each_of("setting", ["labels = ['a', 'b']", "seeds = 10", "drop = ['age']", "rows = 7"])
def test_a_setting_without_effect_at_sites_is_refused(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    write_agreement(file, agreed())
    assert read_agreement(file) == agreed()
    file.write_text(f"{setting}\n{file.read_text()}")
    name = setting.partition(" ")[0]
    with pytest.raises(ValueError, match=f"study.toml: {name} in the experiment part"):
        read_agreement(file)


def test_options_of_files_play_no_part() -> None:
    config = replace(agreed().config, drop=("age",), header_row=2)
    assert at_sites(config, "hearts", 2, agreed().schema) == agreed().config


def test_tables_are_standardized_and_images_are_not() -> None:
    images = Schema("images", "classification", classes=("a", "b"), shape=(1, 8, 8))
    arrays = Schema("arrays", "classification", classes=("a", "b"), shape=(8,))
    config = ExperimentConfig("a")
    units = [at_sites(config, "hearts", 2, s).standardize for s in (TABLE, images, arrays)]
    assert units == ["federated", "none", "none"]


@each_of(
    "training, revealed",
    [
        ("closed-form", "head"),
        ("closed-form:balance=class", "head"),
        ("closed-form:reveal=path", "path"),
        ("closed-form:delta=1e-5", None),
        ("fedavg", None),
    ],
)
def test_sites_receive_one_model_unless_the_study_names_the_path(
    training: str, revealed: str | None
) -> None:
    config = ExperimentConfig("a", training=Spec.of(training))
    if "delta" in training:
        config = replace(config, privacy=Privacy(epsilon=1.0))
    agreed_on = at_sites(config, "hearts", 3, TABLE).training
    assert agreed_on.fields.get("reveal") == revealed
    assert agreed_on.name == config.training.name


WIDTHS = {
    "identity": "62 exact numbers, .* can be computed; .* from 21 new labels on, .*categories",
    "fourier:features=16": "224 exact numbers, .* from 75 new labels on, or with at most 2 f",
    "fourier": "3,263,872 exact numbers, .* examples can be computed; .* with at most 2 features",
}


@each_of("encoder", WIDTHS)
def test_init_compares_numbers_with_values_and_names_the_width_that_keeps_them_below(
    encoder: str,
) -> None:
    settings = ("training=closed-form:shown=parts:reveal=head", "initial=19", "budget=18")
    (line,) = describe_planned(agreed(*settings, f"encoder={encoder}"))
    assert re.search(f"{WIDTHS[encoder]}", line)
    assert describe_planned(agreed("training=fedavg", "initial=18")) == []


def test_init_shows_a_small_number_of_labels_that_the_agreement_states() -> None:
    settings = ("training=closed-form:shown=parts:reveal=head", "initial=4", "budget=4")
    (line,) = describe_planned(agreed(*settings, "encoder=identity"))
    assert "compared with 4 labeled examples of 3 values (12 values)" in line


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("cycles = 1", "cylces = 1", "cylces is not a setting; did you mean 'cycles'"),
        ("cycles = 1", "flip = 1", "wrong labels are for simulations"),
        ("seed = 0", "sead = 0", "federation.sead is not a setting"),
        ("seed = 0", "seed = true", "federation.seed is True; it must be a whole number"),
        ("[federation]", "[federal]", "no section [federation]"),
        ('"10m"', '"10 minutes"', "federation.timeout is '10 minutes'"),
        ('"10m"', '"0s"', "federation.timeout is 0.0"),
        ("farthest = 1000.0", f"farthest = {10**400}", "federation.farthest is beyond all"),
        ('["north", "south"]', '["north", "north"]', "each site once"),
        ('["north", "south"]', '["../north"]', "is not a valid name"),
        ('["north", "south"]', "[1]", "federation.sites.0 is 1; it must be a text"),
        ("a2tra2tr", "a2tr", "is not 32 bytes in base64"),
        ("a2tra2tr", "??", "is not 32 bytes in base64"),
        (KEY, "AQ" + 41 * "A" + "=", "a weak key, for which anyone can forge"),
        ("quorum = 1", "quorum = 3", "must be 1 to 2"),
        (
            "quorum = 1",
            'authority = "mine"',
            "federation.authority contains no certificate",
        ),
        ("quorum = 1", "authority = 1", "federation.authority is 1; it must be a text"),
        ('kind = "table"', 'kind = "pictures"', "schema.kind"),
        ('"yes"]', '"no"]', "two classes or more"),
        ('ids = "id"', 'idz = "id"', "schema.idz is not a setting; did you mean 'ids'"),
        ('ids = "id"', 'ids = "age"', "'age' is the name of two columns"),
        ('["female", "male"]', '["male", "male"]', "each text once"),
    ],
)
def test_an_error_names_the_file_and_the_setting(
    old: str, new: str, reason: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "study.toml", old, new)
    with pytest.raises(ValueError) as error:
        read_agreement(path)
    assert str(path) in str(error.value)
    assert reason in str(error.value)


def test_a_file_that_is_missing_or_no_toml_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_agreement(tmp_path / "study.toml")
    (tmp_path / "study.toml").write_text("sites = [")
    with pytest.raises(ValueError, match="not valid TOML"):
        read_agreement(tmp_path / "study.toml")


def test_a_quorum_under_secure_sums_hides_the_single_site() -> None:
    sites = ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="must be 3 to 4"):
        agreed("privacy.secure_sum=true", "privacy.bound=10.0", sites=sites)


# -- use in the server side and the client side --------------------------------------------


def test_both_halves_have_the_weights_of_the_simulator(tmp_path: Path) -> None:
    rows = [
        f"{'ns'[i % 2]},{20 + i},{('female', 'male')[i % 3 % 2]},{i * i},{('no', 'yes')[i % 2]}"
        for i in range(40)
    ]
    file = tmp_path / "all.csv"
    file.write_text("\n".join(["ward,age,sex,chol,disease", *rows]))
    config = config_from(
        {
            "name": "a",
            "data": str(file),
            "partition": "natural",
            "sites": 2,
            "label": "disease",
            "site": "ward",
            "dtype": "float64",
            "model": "mlp",
        }
    )
    simulation = build_environment(config, 3, MemoryStore())
    details = agreed("dtype=float64", "model=mlp", seed=3)
    ours = build_study(details)
    assert ours.layout == simulation.layout
    assert ours.trainer == simulation.executor
    for name, weights in simulation.model.state_dict().items():
        assert torch.equal(ours.model.state_dict()[name], weights)
    draw = [fresh(stream(3, "init", 0))["w"] for fresh in (ours.fresh, simulation.fresh)]
    assert torch.equal(*draw)
    assert draw[0].dtype == torch.float64


def test_a_method_that_reads_hidden_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="which exist only in a simulation"):
        build_study(agreed("strategy=oracle-histogram"))


def test_a_method_that_does_not_suit_the_schema_is_refused() -> None:
    with pytest.raises(
        ValueError, match="entropy requires classes and hearts is a regression task"
    ):
        build_study(agreed("strategy=entropy", schema=NUMBERS))


def test_frozen_features_take_the_place_of_rows() -> None:
    agreement = agreed("features=mlp", "model=linear")
    assert agreement.config.standardize == "none"
    assert agreement.transform(torch.zeros(3, 4)).shape == (3, 64)
    assert build_study(agreement).layout.params[0][1] == (2, 64)


def test_the_encoder_of_photographs_is_named_with_its_fields() -> None:
    config = ExperimentConfig(
        "photos", training=Spec("closed-form"), model=Spec("linear"), encoder=Spec("auto")
    )
    photographs = Schema("arrays", "classification", "y", ("a", "b"), (), (3, 32, 32))
    named = at_sites(config, "photos", 3, photographs).encoder
    assert named == Spec.of(Auto().settle((3, 32, 32)))
    small = replace(photographs, shape=(3, 16, 16))
    assert at_sites(config, "photos", 3, small).encoder == Spec("auto")
