"""Files of datasets in the data folder, among them hostile archives."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fallow.catalog import find_entry, find_files, list_entries, source_files
from fallow.catalog import folder as catalog_folder
from fallow.catalog.entries import CIFAR10_BATCHES
from fallow.catalog.folder import MOST_NESTED, open_unpacked
from fallow.storage.received import UnfitError
from tests.data.published import cifar10_parts, write_cifar10, write_fashion_mnist


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_folder, "MOST_CONTENT", 2000)
    monkeypatch.setattr(catalog_folder.BoundedStream.__init__, "__defaults__", (2000,))


def write_zip(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"in/{name}", content)
    return path


def test_a_member_is_found_in_any_folder_and_in_an_archive_of_the_archive(
    tmp_path: Path,
) -> None:
    inner = write_zip(tmp_path / "a.zip", table=b"1,2").read_bytes()
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("more/inner.zip", inner)
    for name in ("a.zip", "b.zip"):
        with open_unpacked(tmp_path / name, "table") as stream:
            assert stream.read() == b"1,2"
    with (
        pytest.raises(ValueError, match=r"b\.zip does not contain the file other"),
        open_unpacked(tmp_path / "b.zip", "other"),
    ):
        pass


def test_archives_in_archives_end(tmp_path: Path) -> None:
    content = write_zip(tmp_path / "a.zip", table=b"1").read_bytes()
    for _ in range(MOST_NESTED):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("inner.zip", content)
        content = packed.getvalue()
    (tmp_path / "deep.zip").write_bytes(content)
    with (
        pytest.raises(ValueError, match="does not contain the file table"),
        open_unpacked(tmp_path / "deep.zip", "table"),
    ):
        pass


@pytest.mark.usefixtures("few_bytes")
def test_zeros_do_not_fill_the_memory(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", table=bytes(10**6))
    with (
        pytest.raises(UnfitError, match=r"a\.zip unpacks to more than 2\.0 kB"),
        open_unpacked(tmp_path / "a.zip", "table") as stream,
    ):
        stream.read()
    files = write_tar(tmp_path, {"other": bytes(10**6), **cifar10_parts()})
    with pytest.raises(UnfitError, match=r"cifar-10-binary.tar.gz unpacks to more than"):
        files.read_members(files.edition.files[0])


def write_tar(
    folder: Path, members: dict[str, bytes], kind: bytes = tarfile.REGTYPE
) -> catalog_folder.DataFiles:
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "/etc/passwd"
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(content))
    return find_files(find_entry("cifar10"), folder)


def test_members_of_an_archive_are_read_and_never_unpacked(tmp_path: Path) -> None:
    files = write_tar(tmp_path, {"../outside": b"no", **cifar10_parts()})
    (file,) = files.edition.files
    assert files.read_members(file) == cifar10_parts()
    assert (
        files.read_members(file, 5)[CIFAR10_BATCHES[0]]
        == cifar10_parts()[CIFAR10_BATCHES[0]][:5]
    )
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    files = write_tar(tmp_path, dict.fromkeys(CIFAR10_BATCHES, b""), tarfile.SYMTYPE)
    with pytest.raises(ValueError, match="does not contain the file cifar-10-batches-bin/"):
        files.read_members(files.edition.files[0])


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    files = write_tar(tmp_path, cifar10_parts())
    path = tmp_path / "cifar-10-binary.tar.gz"
    for content in (path.read_bytes()[:1000], b"no archive"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz in .* is incomplete"):
            files.read_members(files.edition.files[0])


def test_the_files_of_a_set_are_known_without_reading_it(tmp_path: Path) -> None:
    assert source_files("fashion_mnist", tmp_path) == []
    write_fashion_mnist(tmp_path)
    assert len(source_files("fashion_mnist", tmp_path)) == 4
    write_cifar10(tmp_path)
    assert [path.name for path in source_files("cifar10_small", tmp_path)] == [
        "data_batch_1.bin",
        "test_batch.bin",
    ]


def test_a_set_that_is_there_in_part_names_the_first_missing_file(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    (tmp_path / CIFAR10_BATCHES[2]).unlink()
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz is needed, which is not"):
        find_files(find_entry("cifar10"), tmp_path)


def test_every_entry_has_a_source_a_license_and_a_citation() -> None:
    for entry in list_entries():
        assert entry.page.startswith("http") and entry.license, entry.name
        assert entry.citation or entry.source == "bundled" or "openml" in entry.page
        assert not entry.class_names or len(entry.class_names) == entry.classes
        for edition in entry.editions:
            for file in edition.files:
                kind, _, digits = file.checksum.partition(":")
                length = {"sha256": 64, "md5": 32, "": 0}[kind]
                assert len(digits) == length, file.name


def test_metadata_of_all_sets_is_read_without_torch_and_numpy() -> None:
    code = (
        "import sys, fallow.catalog as c; c.list_entries(); "
        "import fallow.cli.dataset_rows; "
        "print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
