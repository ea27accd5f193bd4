"""A study at real sites that selects cases: scans of several slices, annotated elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from fallow.core.events import Event
from fallow.deployment.agreement import Agreement, at_sites
from fallow.deployment.site.agreement_text import describe_study
from fallow.deployment.site.annotation_files import import_annotations
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import write_agreement
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from tests.data.test_nifti import nifti
from tests.deployment.simulations import (
    NAMES,
    OPTIONAL,
    WAITS,
    Federation,
    check_order,
    rows,
)
from tests.deployment.test_case_rows import SCANS
from tests.deployment.test_choose_only import CHOOSE
from tests.deployment.test_closed_form_killed import VICTIM, Killed, answering
from tests.deployment.test_program_resume import read_left

pytest.importorskip("cryptography")
SITES = NAMES[:3]
N_CASES = 8
CONFIG = replace(
    CHOOSE,
    training=Spec("none", {"cases": "group"}),
    strategy=Spec("core-set"),
    initial=1,
    budget=2,
)


def write_scans(folder: Path, seed: int) -> Path:
    """Write eight scans of two to four slices."""
    draw = np.random.default_rng(seed)
    images = folder / "unlabeled"
    images.mkdir(parents=True)
    for case in range(N_CASES):
        shape = (2 + case % 3, 6, 4)
        pages = [Image.fromarray(page) for page in draw.integers(0, 255, shape, np.uint8)]
        file = images / f"scan-{case}.tif"
        pages[0].save(file, save_all=True, append_images=pages[1:])
    return folder


def study(folder: Path, encoder: str = "identity") -> Federation:
    secret = new_signing_key()
    chosen = replace(CONFIG, encoder=Spec.parse(encoder))
    config = at_sites(chosen, "scans", len(SITES), SCANS)
    agreed = Agreement("scans", config, SCANS, SITES, verify_key(secret), 0, WAITS)
    folder.mkdir(parents=True, exist_ok=True)
    write_agreement(folder / "study.toml", agreed)
    sites = {}
    for number, name in enumerate(SITES):
        images = write_scans(folder / f"{name}-images", number)
        sites[name] = SiteFolder.create(
            folder / name, folder / "study.toml", name=name, data=str(images)
        )
    return Federation(folder, agreed, rows(SITES), secret, sites, annotate=lambda *_: 0.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A finished study, whose first site answered with masks of all slices."""
    made = study(tmp_path_factory.mktemp("cases"))

    def draw_masks(event: Event) -> None:
        ledger = made.ledgers[SITES[0]]
        folder = made.folder / f"masks-{len(made.events)}"
        folder.mkdir()
        scans = made.sites[SITES[0]].rows
        for task in ledger.tasks(state="open"):
            depth = scans.find_depth(task.row)
            mask = nifti([1] * (24 * depth), (4, 6, depth))
            (folder / f"scan-{task.row}.nii").write_bytes(mask)
        import_annotations(ledger, SCANS, scans, folder, ("lesion",), "Bo")
        made.label(event)

    assert made.program(notify=draw_masks).go()
    check_order(made, (*OPTIONAL, "encoder"))
    yield made
    made.close()


@pytest.mark.long
def test_budgets_and_ledgers_count_cases(finished: Federation) -> None:
    for labels in finished.labels().values():
        assert len({label.row for label in labels}) == 3
        assert max(label.row for label in labels) < N_CASES
    last = finished.records()[-1]
    assert (last["pool"], last["labeled"]) == (len(SITES) * N_CASES, 9)
    tasks = finished.ledgers[SITES[0]].tasks()
    assert {answer.annotator for task in tasks for answer in task.answers} == {"Bo"}


@pytest.mark.long
def test_the_score_is_the_distance_between_cases(finished: Federation) -> None:
    spread = nearest = 0.0
    for site, labels in finished.labels().items():
        scans = finished.sites[site].rows
        z = scans.x.flatten(1).double()
        joined = [
            torch.cat([z[[*own]].mean(0), z[[*own]].amax(0)]) for own in scans.of_case
        ]
        x = torch.stack(joined)
        selected = x[[label.row for label in labels]]
        nearest += float(torch.cdist(x, selected).amin(1).square().sum())
        spread += float((x - x.mean(0)).square().sum())
    last = finished.records()[-1]
    assert last["distance"] == pytest.approx(nearest / spread, rel=1e-4)


@pytest.mark.long
def test_a_site_reads_in_the_agreement_that_groups_are_examples(
    finished: Federation,
) -> None:
    lines = describe_study(finished.sites[SITES[0]])
    assert any("all rows of a group are one example" in line for line in lines)


def test_other_groups_after_the_start_are_refused(tmp_path: Path) -> None:
    made = study(tmp_path)
    made.close()
    folder = tmp_path / f"{SITES[0]}-images" / "unlabeled"
    slices: list[Image.Image] = []
    for name in ("scan-0.tif", "scan-1.tif"):  # of two and of three slices
        with Image.open(folder / name) as scan:
            slices += [page.copy() for page in ImageSequence.Iterator(scan)]
    for name, pages in (("scan-0.tif", slices[:3]), ("scan-1.tif", slices[3:])):
        pages[0].save(folder / name, save_all=True, append_images=pages[1:])
    with pytest.raises(StorageError, match="are not those with which site"):
        _ = SiteFolder.open(tmp_path / SITES[0]).rows


@pytest.mark.long
def test_a_site_killed_while_it_selects_cases_ends_with_the_same(tmp_path: Path) -> None:
    # an encoder that is fitted to the rows of cases, of which there are more than cases
    fresh = study(tmp_path / "fresh", "fourier:features=8")
    fresh.close()
    whole = fresh.again(tmp_path / "whole")
    whole.annotate = fresh.annotate
    assert whole.program(answering(whole)).go()
    whole.close()
    simulation = fresh.again(tmp_path / "killed")
    simulation.annotate = fresh.annotate
    simulation.ledgers.pop(VICTIM).close()
    killed = Killed(simulation.sites[VICTIM], ("0/initial/", "0/train/0/", "0/query/0"))
    simulation.transport.alive[VICTIM] = killed.handle
    with closing(killed):
        assert simulation.program(answering(simulation)).go()
    simulation.close()
    assert read_left(simulation) == read_left(whole)
    assert min(killed.deaths.values()) >= 4
