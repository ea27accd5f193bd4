"""The commands in the hands of a stranger: one sentence, the right exit code, nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.cli import main
from fallow.federation.agreement import write_agreement
from fallow.federation.site.folder import SiteFolder
from tests.federation.agreed import HEAD, ROWS, agreed, table

pytest.importorskip("cryptography")
Said = Callable[..., tuple[int, str]]
SITE = ("site", "init", "new", "--study", "study.toml", "--name", "north", "--data")


@pytest.fixture
def fallow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    """The command in a folder with a study, rows and the site ``SITE``: exit code and error."""
    monkeypatch.chdir(tmp_path)
    write_agreement(Path("study.toml"), agreed())
    table(Path("rows.csv"))
    table(Path("other.csv"), head=HEAD.replace("chol", "chols"))
    table(Path("text.csv"), ROWS[0].replace("male", "man"))
    table(Path("class.csv"), ROWS[0].replace("yes", "perhaps"))
    Path("head.csv").write_text(f"{HEAD}\n")
    Path("empty.csv").write_text("")
    Path("list.json").write_text("[1]")
    Path("nothing.csv").write_text("")
    SiteFolder.create("SITE", "study.toml", name="north", data="rows.csv", superlink="h:1")

    def called(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fallow", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), " ".join(capsys.readouterr().err.split())

    return called


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SITE, "nowhere.csv"), "nowhere.csv"),
        ((*SITE, "empty.csv"), "empty.csv"),
        ((*SITE, "head.csv"), "head.csv"),
        ((*SITE, "other.csv"), "did you mean 'chols'"),
        ((*SITE, "text.csv"), "'man' is none of the agreed texts"),
        ((*SITE, "class.csv"), "'perhaps' is not one of the agreed classes"),
        ((*SITE, "rows.csv", "--name", "nroth"), "it has north, south"),
        ((*SITE, "rows.csv", "--study", "rows.csv"), "rows.csv"),
        ((*SITE, "rows.csv", "--superlink", "host"), "give host:port"),
        ((*SITE, "rows.csv", "--test", "rows.csv"), "test rows have no label"),
        ((*SITE, "rows.csv", "--limit", "many"), "many"),
        (("site", "start", "nowhere"), "fallow site init nowhere"),
        (("site", "status", "nowhere"), "fallow site init nowhere"),
        (("label", "nowhere", "--no-open"), "fallow site init nowhere"),
        (("site", "import", "SITE", "nowhere.csv"), "nowhere.csv cannot be read"),
        (("site", "import", "SITE", "list.json"), "list.json"),
        (("site", "import", "SITE", "nothing.csv"), "nothing.csv is empty"),
        (("site", "export", "SITE", "asked.txt"), "asked.txt"),
        (("coordinate", "status", "SITE"), "fallow coordinate init SITE"),
        (("coordinate", "admit", "SITE", "list.json"), "fallow coordinate init SITE"),
    ],
)
def test_a_wrong_use_is_told_in_one_sentence_and_leaves_nothing(
    words: tuple[str, ...], said: str, fallow: Said, tmp_path: Path
) -> None:
    code, err = fallow(*words)
    assert code == 2
    assert said in err
    assert err.count("error:") == 1 and "Traceback" not in err
    assert "should not happen" not in err
    assert not (tmp_path / "new" / "site.toml").exists()


def test_a_damaged_page_of_the_ledger_has_a_way_out(fallow: Said, tmp_path: Path) -> None:
    with_ledger = SiteFolder.open("SITE").open_ledger()
    with_ledger.backup()
    with_ledger.close()
    file = tmp_path / "SITE" / "ledger.sqlite"
    blob = bytearray(file.read_bytes())
    blob[100:4096] = bytes(3996)
    file.write_bytes(blob)
    code, err = fallow("site", "status", "SITE")
    assert code == 1
    assert "copy ledger-backup.sqlite" in err
    for old in file.parent.glob("ledger.sqlite*"):  # as the sentence says
        old.unlink()
    file.write_bytes((tmp_path / "SITE" / "ledger-backup.sqlite").read_bytes())
    assert fallow("site", "status", "SITE") == (0, "")
