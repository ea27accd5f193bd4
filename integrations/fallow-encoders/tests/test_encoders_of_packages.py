"""Test encoders by name: in configurations, at real sites and in exported models."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from network_files import NAME, installed

import fallow as fl
from fallow.core.extensions import OFFICIAL
from fallow.core.names import NamePolicy, distribution_digest
from fallow.deployment.building import build_study
from fallow.settings.config import ExperimentConfig, named_classes
from fallow.settings.spec import Spec
from tests.deployment.simulations import TINY, federation, rows
from tests.packages import forget
from tests.study.test_export_model import run_on_digits, run_onnx

__all__ = ["installed"]

pytestmark = pytest.mark.usefixtures("installed")


def test_a_configuration_names_encoders_by_entry_points_and_imports_nothing() -> None:
    forget("fallow_encoders")
    for name in OFFICIAL["fallow.encoders"]:
        target = named_classes(ExperimentConfig("a", encoder=Spec(name)))["encoder"]
        assert target.startswith("fallow_encoders.")
    assert "fallow_encoders" not in sys.modules


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": "/etc/passwd"}, "has no sha256"),
        ({"weights": "model.onnx", "sha256": ""}, "has no sha256"),
    ],
)
@pytest.mark.parametrize("name", ["onnx", "fallow_encoders.onnx:ONNX"])
def test_weights_without_an_agreed_digest_are_refused_before_the_file_is_read(
    name: str, fields: dict[str, str], message: str, tmp_path: Path
) -> None:
    agreed = federation(tmp_path / "simulation", TINY, rows()).agreement
    config = replace(agreed.config, encoder=Spec(name, dict(fields)))
    with pytest.raises(ValueError, match=message):
        build_study(replace(agreed, config=config, names=allow()))


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (Spec("timm", {"network": "resnet18"}), "has no weights and no sha256"),
        (
            Spec("tabpfn", {"weights": "a", "sha256": "0" * 64}),
            "has no context and no context_sha256",
        ),
    ],
)
def test_a_network_that_would_be_fetched_is_refused(
    encoder: Spec, message: str, tmp_path: Path
) -> None:
    agreed = federation(tmp_path / "simulation", TINY, rows()).agreement
    config = replace(agreed.config, encoder=encoder)
    with pytest.raises(ValueError, match=message):
        build_study(replace(agreed, config=config, names=allow()))


def test_a_site_that_does_not_allow_the_distribution_does_not_load_it(
    tmp_path: Path,
) -> None:
    agreed = federation(tmp_path / "simulation", TINY, rows()).agreement
    config = replace(agreed.config, encoder=Spec("timm", {"network": "resnet18"}))
    forget("fallow_encoders")
    with pytest.raises(ValueError, match=f"installed distribution {NAME}; review its code"):
        replace(agreed, config=config)
    assert "fallow_encoders" not in sys.modules


def allow() -> NamePolicy:
    return NamePolicy(allowed={NAME: distribution_digest(NAME)})


def test_an_encoder_of_another_package_is_left_out_on_request(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    own, x = run_on_digits(model="mlp", rounds=1)
    encoder = own.export(tmp_path / "encoder.onnx")
    run, _ = run_on_digits(encoder=f"onnx:{encoder}")
    with pytest.raises(ValueError, match=r"cannot be part of the file.*--without-encoder"):
        run.export(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="needs files that a repository does not contain"):
        run.save(tmp_path / "saved")
    file = run.export(tmp_path / "model.onnx", with_encoder=False)
    features = run_onnx(encoder, x)
    assert np.abs(run_onnx(file, features) - run.predict_proba(x)).max() < 1e-5


def test_a_saved_study_loads_its_encoder_only_where_its_owner_says_so(
    tmp_path: Path,
) -> None:
    pytest.importorskip("onnxruntime")
    own, x = run_on_digits(model="mlp", rounds=1)
    encoder = own.export(tmp_path / "encoder.onnx")
    run, _ = run_on_digits(encoder=f"onnx:{encoder}", out=tmp_path / "study")
    forget("fallow_encoders")
    with pytest.raises(ValueError, match="names code that is not part of Fallow"):
        fl.load_model(tmp_path / "study").predict(x)
    assert "fallow_encoders" not in sys.modules
    loaded = fl.load_model(tmp_path / "study", own_code=True)
    assert (loaded.predict(x) == run.predict(x)).all()


def test_an_object_and_its_name_are_one_configuration() -> None:
    from fallow_encoders import ONNX

    named = ExperimentConfig("a", encoder=Spec("onnx", {"weights": "net.onnx"}))
    assert Spec.of(ONNX("net.onnx")) == named.encoder
    assert Spec.parse("onnx:net.onnx") == named.encoder
