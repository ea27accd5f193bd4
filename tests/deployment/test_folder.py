"""Test a site's folder: validation before creation, private keys, unchanged examples."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.agreement import Agreement, Timeouts
from fallow.deployment.site.agreement_text import (
    describe_rows,
    describe_study,
    list_disclosures,
)
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import write_agreement
from fallow.privacy.masks import public_half
from fallow.privacy.settings import Privacy
from fallow.privacy.signing import open_signed, sign
from fallow.storage.errors import StorageError
from tests.deployment.agreed import ROWS, TEST_ROWS, agreed, table

pytest.importorskip("cryptography")


def site(folder: Path, agreement: Agreement | None = None, **chosen: Any) -> SiteFolder:
    """Return the folder of the site "north" with the four rows of `ROWS`."""
    write_agreement(folder / "study.toml", agreement or agreed())
    data = folder / "rows.csv"
    if not data.exists():
        table(data)
    chosen = {"name": "north", "data": str(data), "address": "127.0.0.1:9", **chosen}
    return SiteFolder.create(folder / "SITE", folder / "study.toml", **chosen)


def test_a_folder_is_opened_as_it_was_made(tmp_path: Path) -> None:
    made = site(tmp_path, limit=3, annotators=2, epsilon=0.5)
    outcome = SiteFolder.open(tmp_path / "SITE")
    assert outcome.settings == made.settings
    assert (
        outcome.settings.limit,
        outcome.settings.annotators,
        outcome.settings.epsilon,
    ) == (
        3,
        2,
        0.5,
    )
    assert outcome.agreement == agreed()
    assert outcome.rows.labels == (1.0, 0.0, None, None)
    assert outcome.tests is None
    assert outcome.keys == made.keys


def test_secrets_are_for_their_owner_alone_and_what_is_sent_is_public(
    tmp_path: Path,
) -> None:
    made = site(tmp_path)
    modes = {
        p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "SITE" / "keys").iterdir()
    }
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "SITE" / "keys").stat().st_mode & 0o777 == 0o700
    sent = json.loads((tmp_path / "SITE" / "join.json").read_text())
    assert (
        open_signed(base64.b64decode(sent["verify"]), sign(made.keys.sign, b"hi"), "north")
        == b"hi"
    )
    assert base64.b64decode(sent["seal"]) == public_half(made.keys.seal)
    assert sent["transport_key"] == ""  # HTTPS needs no key
    assert (sent["name"], sent["study"]) == ("north", agreed().digest)
    secrets = (
        base64.b64encode(secret).decode() for secret in (made.keys.sign, made.keys.seal)
    )
    assert not any(secret in json.dumps(sent) for secret in secrets)


def test_an_attempt_that_failed_halfway_goes_on_with_its_keys(tmp_path: Path) -> None:
    site(tmp_path)
    first = (tmp_path / "SITE" / "join.json").read_bytes()
    (tmp_path / "SITE" / "site.toml").unlink()
    site(tmp_path)
    assert (tmp_path / "SITE" / "join.json").read_bytes() == first


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"name": "west"}, "'west' is not a site of .*; its sites are north, south"),
        ({"address": "coordinator"}, "give host:port"),
        ({"annotators": 0}, "must be a whole number, at least 1"),
        ({"limit": -1}, "it must be a whole number, 0 or more"),
        ({"epsilon": 0.0}, "it must be a finite number above 0"),
        ({"data": "nowhere.csv"}, "there is no file"),
        ({"certificates": "nowhere.pem"}, "nowhere.pem"),
    ],
)
def test_a_wrong_choice_leaves_no_folder(
    chosen: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, OSError), match=reason):
        site(tmp_path, **chosen)
    assert not (tmp_path / "SITE" / "site.toml").exists()


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    site(tmp_path)
    with pytest.raises(ValueError, match="is already the folder of a site"):
        site(tmp_path)


def test_another_folder_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fallow site init"):
        SiteFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("annotators = 1", "anotators = 1", "labels.anotators is not a setting"),
        ("annotators = 1", 'annotators = "one"', "labels.annotators is 'one'"),
        ("address =", "adress =", "adress is not a setting"),
        ("[labels]", "[labels", "not valid TOML"),
    ],
)
def test_a_wrong_setting_is_named(old: str, new: str, reason: str, tmp_path: Path) -> None:
    site(tmp_path)
    file = tmp_path / "SITE" / "site.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=reason):
        SiteFolder.open(tmp_path / "SITE")


def test_rows_stay_as_they_were_and_labels_may_be_added(tmp_path: Path) -> None:
    site(tmp_path)
    table(tmp_path / "rows.csv", *ROWS[:2], ROWS[2] + "no", ROWS[3])
    assert SiteFolder.open(tmp_path / "SITE").rows.labels == (1.0, 0.0, 0.0, None)
    for rows in (ROWS[::-1], ROWS[:3], [*ROWS[:3], ROWS[3].replace("56", "57")]):
        table(tmp_path / "rows.csv", *rows)
        with pytest.raises(StorageError, match="restore the old file"):
            _ = SiteFolder.open(tmp_path / "SITE").rows


def test_paths_count_from_the_folder_where_they_lie_inside(tmp_path: Path) -> None:
    (tmp_path / "SITE").mkdir()
    inside = table(tmp_path / "SITE" / "mine.csv")
    tests = table(tmp_path / "SITE" / "test.csv", TEST_ROWS[0])
    made = site(tmp_path, data=str(inside), test=str(tests))
    assert (made.settings.data, made.settings.test) == ("mine.csv", "test.csv")
    (tmp_path / "SITE").rename(tmp_path / "MOVED")
    moved = SiteFolder.open(tmp_path / "MOVED")
    assert (len(moved.rows.x), moved.tests is not None) == (4, True)


def test_a_damaged_key_is_said(tmp_path: Path) -> None:
    site(tmp_path)
    (tmp_path / "SITE" / "keys" / "site.key").write_text("{}")
    with pytest.raises(StorageError, match="restore it from a backup"):
        _ = SiteFolder.open(tmp_path / "SITE").keys


# -- settings of a study at a site ---------------------------------------------------------


def test_terms_say_what_is_asked_spent_and_hidden(tmp_path: Path) -> None:
    details = agreed(
        "privacy.epsilon=0.5", "cycles=4", "initial=2", "budget=3", "strategy=ahfal"
    )
    lines = "\n".join(describe_study(site(tmp_path, details, limit=9, epsilon=1.0)))
    for words in (
        "study hearts",
        "first 2 labels per site, then in each of 4 cycles 3 labels per site",
        "gives at most 9",
        "noise covers only the counts that the query strategy sends: epsilon 0.5 per release",
        "and 2 in total; epsilon is at most 1 at this site",
        "without secure aggregation, the coordinator sees the sums of each site",
    ):
        assert words in lines


def test_what_can_leave_comes_from_the_contracts(tmp_path: Path) -> None:
    made = site(tmp_path, agreed("strategy=ahfal"))
    disclosed = {(part, function) for part, function, *_ in list_disclosures(made)}
    assert ("training", "upload") in disclosed
    assert ("standardization", "columns") in disclosed
    assert not any(part == "best model" for part, _ in disclosed)  # no validation set
    assert not any(line.reveals == "nothing" for line in list_disclosures(made))


@pytest.mark.parametrize(
    ("training", "is_secure", "seen"),
    [
        (
            "fedavg",
            False,
            {
                "select": "coordinator",
                "share": "coordinator, each contribution",
                "score": "coordinator",
            },
        ),
        (
            "fedavg",
            True,
            {
                "select": "coordinator",
                "share": "coordinator, aggregate only",
                "score": "coordinator, aggregate only",
            },
        ),
        ("dpfl", False, {"model": "other sites, encrypted", "choices": "coordinator"}),
    ],
)
def test_who_sees_what_leaves_follows_from_how_it_is_asked(
    tmp_path: Path, training: str, is_secure: bool, seen: dict[str, str]
) -> None:
    agreement = agreed(
        "strategy=ahfal", f"training={training}", sites=("north", "south", "west")
    )
    privacy = Privacy(secure_sum=is_secure, sums="exact")
    config = replace(agreement.config, privacy=privacy)
    disclosures = list_disclosures(
        site(tmp_path, replace(agreement, config=config, waits=Timeouts()))
    )
    assert len({(part, function) for part, function, *_ in disclosures}) == len(disclosures)
    assert (
        seen.items()
        <= {function: audience for _, function, _, audience, _ in disclosures}.items()
    )


def test_rows_are_told_with_their_labels_and_notes(tmp_path: Path) -> None:
    made = site(tmp_path)
    assert describe_rows(made.rows, made.tests) == [
        "4 examples, 2 of them labeled",
        "no test examples",
    ]
