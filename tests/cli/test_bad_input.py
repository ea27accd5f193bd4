"""Bad input raises an error of one sentence and changes no existing file."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.cli import main
from fallow.configs.find import find_config
from fallow.storage.database import Database
from fallow.study.preparation import open_study
from fallow.study.study import list_runs, run_study
from fallow.study.study_run import Setup
from tests.cli.conftest import Command, contents, table, write_inputs
from tests.each import mark_long
from tests.experiment.crash import start_child, wait_for_child

CSV = ("run", "tiny.toml", "--data", "bad.csv", "--label", "sick")
RUN = ("run", "tiny.toml")
TABLE = ("--data", "patients.csv", "--label", "sick")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["run", "demo", "--budget", "3", "--set", "budget=4"],
            "--budget is '3' and --set budget is '4'; omit one of them",
        ),
        (
            ["run", "demo", "--set", "cycles=3", "--set", "cycles=4"],
            "--set cycles is given twice, as '3' and '4'; omit one of them",
        ),
        (
            ["rnu", "demo"],
            "No such command 'rnu'; did you mean 'run'? See 'fallow --help'",
        ),
        (
            ["compare", "demo", "--strategies", "random"],
            "No such option '--strategies'; did you mean one of '--pages', '--seeds', '--strategy'?",
        ),
        (
            ["strategies"],
            "No such command 'strategies'; 'fallow algorithms' lists strategies",
        ),
        (
            [*RUN, "--sed", "3"],
            "No such option.*--sed.*See 'fallow run --help'",
        ),
        (
            [*RUN, "--seed", "three"],
            "'three' is not a whole number; see 'fallow run --help'",
        ),
        (["run"], "Missing argument 'CONFIG'"),
        (["run", "dmo"], "'dmo' is not an experiment configuration; did you mean 'demo'?"),
        (["run", "nowhere.txt"], "there is no file or folder 'nowhere.txt'"),
        (["run", "own.py"], "the file of one ends in .toml"),
        (["run", "nowhere.toml"], "nowhere.toml cannot be read: No such file or directory"),
        (
            [*RUN, "--strategy", "ahfl"],
            "'ahfl' is not one of the strategies; did you mean 'ahfal'?",
        ),
        (
            [*RUN, "--strategy", "ahfal:tua=3"],
            "ahfal has no setting 'tua'; did you mean 'tau'?",
        ),
        ([*RUN, "--strategy", "ahfal:tau"], "'ahfal:tau' could not be loaded"),
        ([*RUN, "--strategy", "ahfal:tau"], "a setting as name:setting=value"),
        ([*RUN, "--strategy", "ahfal:tau=-1"], "tau is -1; it must be 0 or more"),
        (["compare", "tiny.toml", "-q", "random,entrpy"], "did you mean 'entropy'?"),
        (
            ["compare", "tiny.toml", "-q", "--out", "study"],
            "'--out' is an option and not a strategy; --quiet suppresses output",
        ),
        (["compare", "tiny.toml", "--set", "strategy=ahfal"], "name them with --strategy"),
        (
            [*RUN, "--data", "digts"],
            "'digts' is not a known dataset; did you mean 'digits'?",
        ),
        (
            [*RUN, "--data", "mnist"],
            "give its folder with --data-dir or FALLOW_DATA|FALLOW_DATA",
        ),
        ([*RUN, "--data", "nowhere.csv"], "there is no file or folder 'nowhere.csv'"),
        (
            [*RUN, "--data", "nowhere.csv", "--label", "y"],
            "no file or folder 'nowhere.csv'",
        ),
        ([*RUN, "--set", "round=3"], "round is not a setting; did you mean 'rounds'?"),
        ([*RUN, "--set", "rounds"], "--set 'rounds' is not of the form key=value"),
        (
            [*RUN, "--set", "rounds=two"],
            "rounds is 'two'; it must be a whole number",
        ),
        (
            [*RUN, "--set", "training=fedavgg"],
            "training algorithms; did you mean 'fedavg'?",
        ),
        ([*RUN, "--set", "model=lenet"], "LeNet needs"),
        ([*RUN, "--set", "partition=dirichlt"], "did you mean 'dirichlet'?"),
        ([*RUN, "--set", "partition.alpha=0"], "alpha.* 0"),
        ([*RUN, "--set", "partition.alpha=-1"], "alpha.* -1"),
        ([*RUN, "--set", "partition.alpha=wide"], "alpha is 'wide'; it must be a number"),
        (
            [*RUN, "--set", "sites=100"],
            "60 examples cannot be distributed over 100 sites; use fewer sites, such as --set sites=2",
        ),
        (
            [*RUN, "--set", "partition=natural"],
            "the data name no sites, which the partition natural needs",
        ),
        ([*RUN, "--set", "initial=-1"], "initial is -1; it must be 0 or more"),
        ([*RUN, "--set", "budget=-3"], "budget is -3; it must be above 0"),
        ([*RUN, "--set", "budget=1.5"], "more than all examples"),
        ([*RUN, "--set", "budget=0.95"], "more than the unlabeled pool; lower one of them"),
        (
            [*RUN, "--set", "initial=500"],
            "more than the unlabeled pool of 60 examples; lower one of initial=500",
        ),
        ([*RUN, "--set", "model=nowhere:Net"], "'nowhere:Net' could not be loaded"),
        ([*RUN, "--set", "model=own:Nothing"], "'own:Nothing' could not be loaded"),
        (
            [*RUN, "--set", "model=own:wide"],
            "the head has 5 outputs but the data has 3 classes",
        ),
        pytest.param(
            [*RUN, "--set", "device=cuda", "--set", "data=absent.csv"],  # not read
            "device is 'cuda', and PyTorch finds no GPU on this machine; set device=cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it has one"),
        ),
        (
            [*RUN, "--set", "precision=bf16"],
            "precision is 'bf16' and device is 'none'; also set device=cuda",
        ),
        (
            [*RUN, "--set", "executor=stacked", "--set", "model=own:Own"],
            "needs executor 'loop'",
        ),
        ([*RUN, "--resume"], "--resume requires the folder of the study: add --out FOLDER"),
        (
            [*RUN, "--resume", "--out", "gone"],
            "the folder gone does not exist, so there is no study to resume",
        ),
        ([*RUN, "--out", "patients.csv"], "patients.csv is a file; --out takes the folder"),
        (
            [*RUN, *TABLE, "--site", "ward", "--set", "partition.alpha=0"],
            "natural has no setting 'alpha', and no settings at all; omit it$",
        ),
        (
            [*RUN, "--set", "model=own:Positional"],
            r"Positional does not accept examples of shape \(6,\)",
        ),
        (["report", "nowhere"], "nowhere is not a study"),
        (["export", "nowhere"], "nowhere is not a study"),
        (["export", "nowhere", "--to", "word"], "'word' is not one of"),
        (["predict", "nowhere", "patients.csv"], "nowhere is not a study"),
    ],
)
def test_wrong_use_is_one_sentence(
    fallow: Command, folder: Path, words: list[str], sentence: str
) -> None:
    shutil.copy(Path(__file__).parent / "models.py", folder / "own.py")
    before = contents(folder)
    output = fallow(*words)
    assert output.code == 2, output
    assert output.out == ""
    assert re.search(sentence.replace("?", r"\?"), output.says()), output.err
    sys.modules.pop("own", None)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    assert contents(folder) == before


@pytest.mark.parametrize("group", ["site", "coordinate", "audit"])
def test_a_group_without_a_command_shows_its_help(fallow: Command, group: str) -> None:
    output = fallow(group)
    assert output.code == 2
    assert "Usage: fallow " + group in " ".join(output.out.split())
    assert output.says() == f"Missing command; see 'fallow {group} --help'"


@pytest.mark.parametrize(
    ("write", "words", "sentence"),
    [
        (lambda p: table(p), CSV[:4], "is a table; set its column of labels with --label"),
        (lambda p: table(p, label="sic"), CSV, "no column 'sick'; did you mean 'sic'?"),
        (
            lambda p: p.write_text("x,sick\n1,y\n2,y\n3,y\n"),
            CSV,
            "only the class 'y'; label examples of at least two classes",
        ),
        (
            lambda p: p.write_text("site,age,sick\na,1,y\nb,2,n\n"),
            (*CSV, "--site", "hospital"),
            "bad.csv has no column 'hospital'; its columns: site, age, sick",
        ),
        (lambda p: p.write_text("x,sick\n1,\n2,\n3,\n"), CSV, "no label at all"),
        (lambda p: p.write_text("x,sick\n1,0.5\n2,0.5\n3,0.5\n"), CSV, "constant"),
        (
            lambda p: table(p, lambda i: "old" if i == 3 else "1"),
            CSV,
            "column 'age', row 4: 'old' is not a number",
        ),
        (
            lambda p: table(p, lambda i: "inf" if i == 3 else "1"),
            CSV,
            "'age' has 1 infinite values",
        ),
        (
            lambda p: table(p),
            (*CSV, "--site", "wrd"),
            "no column 'wrd'; did you mean 'ward'?",
        ),
        (lambda p: table(p), (*CSV, "--site", "sick"), "is both label and site"),
        (
            lambda p: table(p),
            (*CSV, "--site", "ward", "--set", "sites=5"),
            "5 sites are requested and the data has 3 natural sites",
        ),
        (lambda p: p.write_text(""), CSV, "has no rows"),
        (
            lambda p: p.write_bytes(b"\xff\xfe\x00"),
            CSV,
            "bad.csv is not a CSV file",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(
    fallow: Command,
    folder: Path,
    write: Callable[[Path], object],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    write(folder / "bad.csv")
    before = contents(folder)
    output = fallow(*words)
    assert output.code == 2, output
    assert sentence in output.says()
    assert contents(folder) == before


def test_features_that_are_not_finite_are_named_in_arrays_too(fallow: Command) -> None:
    x = np.ones((30, 4))
    x[3, 2] = np.nan
    np.savez("bad.npz", x=x, y=np.arange(30) % 2)
    output = fallow("run", "tiny.toml", "--data", "bad.npz")
    assert output.code == 2
    assert "column 2" in output.says()


def test_an_empty_site_is_named(fallow: Command, folder: Path) -> None:
    words = [
        "--set",
        'partition={"name": "counts", "table": [{"0": 5}, {"0": 5}, {"0": 0}]}',
    ]
    output = fallow(*RUN, *words)
    assert output.code == 2
    assert "site 2 has" in output.says()


def test_an_existing_study_is_not_overwritten(
    fallow: Command, folder: Path, done: Path
) -> None:
    shutil.copytree(done, folder / "study")
    before = contents(folder / "study")
    output = fallow(*RUN, "--out", "study")
    assert output.code == 2
    assert "study already contains a study; add --resume to continue it" in output.says()
    assert contents(folder / "study") == before


def test_a_resume_with_other_settings_is_refused(
    fallow: Command, folder: Path, done: Path
) -> None:
    shutil.copytree(done, folder / "study")
    before = contents(folder / "study")
    output = fallow(*RUN, "--out", "study", "--resume", "--set", "rounds=3")
    assert output.code == 2
    assert "was started with other settings (rounds differ)" in output.says()
    assert contents(folder / "study") == before


def test_a_damaged_description_is_failure(
    fallow: Command, folder: Path, done: Path
) -> None:
    shutil.copytree(done, folder / "study")
    (folder / "study" / "study.json").write_text('{"name": "tiny", "configuration": {')
    output = fallow(*RUN, "--out", "study", "--resume")
    assert output.code == 1
    assert "study.json is damaged" in output.says()
    output = fallow("report", "study")
    assert output.code == 2
    assert "restore it, or run the study again in another folder" in output.says()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished study of two runs, created without the command."""
    folder = tmp_path_factory.mktemp("done")
    with contextlib.chdir(write_inputs(folder)):
        setup = Setup(find_config("tiny.toml"), Path("study"))
        cells = list_runs(setup.config, setup.config.strategies, [0])
        open_study(setup, cells, "fallow compare tiny.toml", resume=False)
        assert run_study(setup, cells) == []
    return folder / "study"


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("event_log.sqlite", lambda b: b[: len(b) // 2]),
        pytest.param(
            *("event_log.sqlite", lambda b: b[:4096] + b"\xa5" * (len(b) - 4096)),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("event_log.sqlite", lambda b: b"no database" * 100), marks=pytest.mark.long
        ),
        pytest.param(
            *("checkpoints/cycle-1.safetensors", lambda b: b[:-1]), marks=pytest.mark.long
        ),
        ("checkpoints/cycle-1.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1])),
        pytest.param(
            *("checkpoints/cycle-1.safetensors", lambda b: b""), marks=pytest.mark.long
        ),
    ],
)
def test_a_damaged_file_stops_its_run_and_leaves_the_others(
    fallow: Command, folder: Path, done: Path, file: str, damage: Callable[[bytes], bytes]
) -> None:
    run = Path(shutil.copytree(done, folder / "study")) / "cells" / "ahfal" / "seed-0"
    (run / "model.safetensors").unlink()
    (run / file).write_bytes(damage((run / file).read_bytes()))
    other = contents(run.parent.parent / "random")
    again = ("compare", "tiny.toml", "--out", "study", "--jobs", "1", "--resume")
    output = fallow(*again)
    assert output.code == 1
    assert "1 of 2 runs failed; the first was ahfal with seed 0" in output.says()
    assert "damaged" in output.says()
    assert (
        "delete the folder study/cells/ahfal/seed-0 and run again with --resume"
        in output.says()
    )
    assert contents(run.parent.parent / "random") == other


def test_a_missing_package_of_clusters_leaves_no_study_that_blocks_the_folder(
    fallow: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    output = fallow("compare", "tiny.toml", "--cluster", "tcp://a:1", "--out", "study")
    assert "a cluster needs the package fallow-core[cluster]" in output.says()
    assert not (folder / "study").exists()


@pytest.mark.long
def test_the_way_out_of_damage_is_a_way_out(
    fallow: Command, folder: Path, done: Path
) -> None:
    run = Path(shutil.copytree(done, folder / "study")) / "cells" / "ahfal" / "seed-0"
    before = contents(run)
    shutil.rmtree(run)
    assert (
        fallow("compare", "tiny.toml", "--out", "study", "--jobs", "1", "--resume").code
        == 0
    )
    after = contents(run)
    assert all(after[k] == before[k] for k in before if k.endswith(".safetensors"))


def test_a_folder_that_cannot_be_written_is_named(fallow: Command, folder: Path) -> None:
    output = fallow(*RUN, "--out", "patients.csv/study")
    assert output.code == 1
    assert "cannot be written (Not a directory)" in output.says()
    assert "choose another folder" in output.says()


def in_a_child(
    folder: Path, words: tuple[str, ...], prepare: Callable[[], None]
) -> tuple[int, str]:
    """Run the command in a forked child; return its exit code and stderr."""

    def act() -> None:
        prepare()
        sys.argv = ["fallow", *words]
        with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
            sys.stdout, sys.stderr = out, err
            try:
                main()
            except SystemExit as left:
                code = left.code
        os._exit(code if isinstance(code, int) else 70)

    return wait_for_child(start_child(act)), (folder / "err").read_text()


@pytest.mark.long
@pytest.mark.parametrize("limit", mark_long([900, 20_000], [900]))
def test_a_full_disk_is_one_sentence_and_the_study_goes_on_when_there_is_space(
    fallow: Command, folder: Path, limit: int
) -> None:
    assert fallow(*RUN, "--out", "whole").code == 0

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    code, err = in_a_child(folder, (*RUN, "--out", "study"), full)
    assert code == 1
    assert err.startswith("error: ")
    assert "cannot be written" in err
    assert "free some space" in err
    assert len(err.splitlines()) == 1
    resume = ("--resume",) if (folder / "study" / "study.json").exists() else ()
    assert fallow(*RUN, "--out", "study", *resume).code == 0
    model = next((folder / "whole").rglob("model.safetensors")).relative_to(
        folder / "whole"
    )
    assert (folder / "study" / model).read_bytes() == (
        folder / "whole" / model
    ).read_bytes()


@pytest.mark.long
def test_ctrl_c_leaves_one_line_and_a_study_that_goes_on(
    fallow: Command, folder: Path
) -> None:
    assert fallow(*RUN, "--out", "whole").code == 0

    def interrupted() -> None:
        commit, seen = Database.commit, []

        def pressed(database: Database) -> None:
            commit(database)
            seen.append(1)
            if len(seen) == 4:
                os.kill(os.getpid(), signal.SIGINT)

        setattr(Database, "commit", pressed)  # noqa: B010 - in a child process of this test
        # children of a background test runner inherit an ignored SIGINT
        signal.signal(signal.SIGINT, signal.default_int_handler)

    code, err = in_a_child(folder, (*RUN, "--out", "study"), interrupted)
    assert (code, len(err.splitlines())) == (130, 1)
    assert "repeat the command with --resume --out study to resume" in err
    assert fallow(*RUN, "--out", "study", "--resume").code == 0
    for model in (folder / "whole").rglob("*.safetensors"):
        if "phases" not in model.parts:
            other = folder / "study" / model.relative_to(folder / "whole")
            assert other.read_bytes() == model.read_bytes()


def test_a_traceback_is_for_those_who_ask(fallow: Command) -> None:
    assert "Traceback" not in fallow("run", "dmo").err
    assert "Traceback" in fallow("--debug", "run", "dmo").err


@pytest.mark.parametrize("words", [("compare", ""), ("compare", " , "), ("run", " ")])
def test_a_query_that_names_nothing_starts_nothing(
    fallow: Command, words: tuple[str, str]
) -> None:
    done = fallow(words[0], "tiny.toml", "--strategy", words[1])
    assert done.code == 2
    assert done.says().startswith("--strategy is empty; omit it")
    assert not Path("runs").exists()


def test_a_run_takes_one_strategy(fallow: Command) -> None:
    says = fallow("run", "demo", "--strategy", "random,margin").says()
    assert "takes one strategy" in says
    assert "fallow compare demo --strategy random,margin" in says


def test_a_comma_too_many_names_no_strategy(fallow: Command) -> None:
    dry = fallow("compare", "tiny.toml", "--strategy", "random,,entropy,", "--dry-run")
    assert dry.code == 0 and dry.out.count("2 runs") == 1


@pytest.mark.parametrize("content", [b"", b"\x00\x01PK", b"PK\x03\x04"])
def test_a_file_that_is_no_npz_is_said_to_be_none(fallow: Command, content: bytes) -> None:
    Path("bad.npz").write_bytes(content)
    says = fallow("compare", "bad.npz").says()
    assert "bad.npz could not be read: it is not a .npz file" in says
    assert "allow_pickle" not in says and "pickle.load" not in says
