"""Reading of user-supplied files is bounded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow import load_model
from fallow.configs.find import find_config
from fallow.deployment.site.folder import SiteFolder
from fallow.storage.received import TEXT_LIMIT, parse_json, read_named
from fallow.transport.tls import Pair, make_site_context


def test_a_file_of_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"x" * TEXT_LIMIT)
    assert len(read_named(file)) == TEXT_LIMIT
    file.write_bytes(b"x" * (TEXT_LIMIT + 1))
    with pytest.raises(ValueError, match="has more than 4 MiB, the limit for such a file"):
        read_named(file)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("text")
    (tmp_path / "link.txt").symlink_to(tmp_path / "there.txt")
    assert read_named(tmp_path / "link.txt") == b"text"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": "\\ud800"}',
        b'{"\\uDC00": 1}',
        b'["\\ude00\\ud83d"]',
        b'["\xed\xa0\x80"]',
    ],
)
def test_half_of_a_surrogate_pair_is_no_text(text: bytes) -> None:
    with pytest.raises(ValueError, match="it has a text that is not valid Unicode"):
        parse_json(text)


def test_whole_surrogate_pairs_and_their_neighbors_are_texts() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
    assert parse_json('["\ud55c", "é"]'.encode()) == ["\ud55c", "é"]


def read_site(file: Path) -> object:
    return SiteFolder.open(file.parent)


def read_model(file: Path) -> object:
    return load_model(file.parent)


def read_pair(file: Path) -> object:
    return make_site_context(None, Pair(file, file))


READERS = [
    ("mine.toml", lambda file: find_config(str(file))),
    ("site.toml", read_site),
    ("config.json", read_model),
    ("own.pem", read_pair),
    ("own.pem", make_site_context),
]


@pytest.mark.parametrize(("name", "read"), READERS)
def test_what_a_user_names_is_neither_a_pipe_nor_endless_nor_too_large(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / name
    with file.open("wb") as sparse:
        sparse.truncate(64 << 20)
    with pytest.raises(ValueError, match="MiB, the limit for such a file"):
        read(file)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is not a file but a pipe or a device"):
        read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="is not a file but a pipe or a device"):
        read(file)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('base = "mine.toml"', "extends itself by its base; set another base"),
        ('base = "other.toml"', "extends itself by its base; set another base"),
        ("base = 3", "base is 3; it must be a text"),
        ('base = ["demo"]', r"base is \['demo'\]; it must be a text"),
        (f"title = {'[' * 5000}{']' * 5000}", "too many nested lists"),
        (f"{'a.' * 100_000}a = 1", "has a key of more than 64 parts"),
        (f"cycles = {'9' * 5000}", "is not valid TOML"),
    ],
)
def test_a_configuration_that_leads_nowhere_is_refused_in_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    (tmp_path / "other.toml").write_text('base = "mine.toml"')
    with pytest.raises(ValueError, match=sentence):
        find_config(str(file))
