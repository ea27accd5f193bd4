"""Test how the folder of a coordinator is created."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fallow.deployment import coordinator
from fallow.deployment.agreement import Timeouts
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.storage.files import write_json
from tests.deployment.hosts import SCHEMA, SITES, agreement

pytest.importorskip("cryptography")


def test_the_keys_of_a_coordinator_are_for_its_owner_alone_whatever_the_umask(
    tmp_path: Path,
) -> None:
    config = agreement("strategy=entropy").config
    plan = coordinator.folder.StudyPlan("hospitals", config, SCHEMA, SITES, 0, Timeouts())
    before = os.umask(0)
    try:
        made = CoordinatorFolder.create(tmp_path / "study", plan)
    finally:
        os.umask(before)
    assert (made.path / "keys").stat().st_mode & 0o777 == 0o700
    assert (made.path / "keys" / "coordinator.key").stat().st_mode & 0o777 == 0o600


def test_a_study_that_has_changed_since_a_site_joined_has_no_keys(tmp_path: Path) -> None:
    config = agreement("strategy=entropy").config
    plan = coordinator.folder.StudyPlan("hospitals", config, SCHEMA, SITES, 0, Timeouts())
    made = CoordinatorFolder.create(tmp_path / "study", plan)
    write_json(made.path / "sites.json", {"north": {"name": "north", "study": "another"}})
    with pytest.raises(ValueError, match="has changed since north joined"):
        _ = made.keys


def test_a_study_with_more_exchanges_than_a_site_lists_is_not_created(
    tmp_path: Path,
) -> None:
    config = agreement("strategy=entropy", "rounds=300000").config
    plan = coordinator.folder.StudyPlan("hospitals", config, SCHEMA, SITES, 0, Timeouts())
    with pytest.raises(ValueError, match=r"more than 250,000 exchanges .*rounds=300000"):
        CoordinatorFolder.create(tmp_path / "study", plan)
