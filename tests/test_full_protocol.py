"""What `python -m bench.full_protocol` refuses before it begins; `test_bare.py` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.full_protocol import main

FILES = (
    "cifar10_labels.npz",
    "cifar10_test.npy.xz",
    "cifar10_train_a.npy.xz",
    "cifar10_train_b.npy.xz",
)


@pytest.mark.parametrize("last", FILES)
def test_it_waits_for_all_parts_of_the_data(
    last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in FILES:
        if file != last:
            (tmp_path / file).touch()
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["ahfal", "--data", str(tmp_path), "--device", "cpu", "--out", str(out)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"study ahfal needs all of cifar10; not there yet: {last}; bring all" in said
    assert not out.exists()
