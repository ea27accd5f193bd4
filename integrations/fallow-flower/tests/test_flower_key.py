"""Test the key file of a SuperNode: Flower accepts it, and only its owner can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.storage.errors import StorageError
from fallow_flower import Flower, new_node_key

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def test_a_key_is_readable_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    new_node_key(tmp_path / "node")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    with pytest.raises(ValueError, match="already exists"):
        new_node_key(tmp_path / "node")


def test_a_node_key_is_what_flower_takes(tmp_path: Path) -> None:
    line = new_node_key(tmp_path / "node")
    secret = serialization.load_ssh_private_key((tmp_path / "node").read_bytes(), None)
    public = serialization.load_ssh_public_key(line.encode())
    assert secret.public_key() == public
    assert public.curve.name == "secp384r1"
    assert (tmp_path / "node.pub").read_text().strip() == line


def test_the_key_of_an_earlier_attempt_is_kept_and_half_of_one_is_replaced(
    tmp_path: Path,
) -> None:
    first = Flower.make_key(tmp_path)
    Flower.check_key(first)
    assert Flower.make_key(tmp_path) == first
    (tmp_path / "node.pub").write_text("")
    second = Flower.make_key(tmp_path)
    assert second != first
    Flower.check_key(second)


def test_a_node_key_has_one_text(tmp_path: Path) -> None:
    line = Flower.make_key(tmp_path)
    public = tmp_path / "node.pub"
    public.write_text(f"{line} someone@example\n")
    assert Flower.make_key(tmp_path) == line
    for other in (f" {line}", f"{line}\n", f"{line} a", f"{line}="):
        with pytest.raises(ValueError, match="is not a public key of a Flower node"):
            Flower.check_key(other)


@pytest.mark.parametrize("key", ["", "abc", "ssh-ed25519 AAAA", "ecdsa-sha2-nistp384"])
def test_what_is_no_key_of_a_node_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not a public key of a Flower node"):
        Flower.check_key(key)


def test_a_site_without_the_key_is_told_so(tmp_path: Path) -> None:
    Flower.make_key(tmp_path)
    Flower.check_site(tmp_path)
    (tmp_path / "node").unlink()
    with pytest.raises(StorageError, match="node is missing: restore it from a backup"):
        Flower.check_site(tmp_path)
