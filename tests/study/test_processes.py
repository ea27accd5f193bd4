"""Worker processes ignore Ctrl-C and end with their parent."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import fallow as fl
from fallow.core.view import View
from tests.simulations import PLAIN

PARENT = """
import multiprocessing, os, signal, time
from fallow.study.study import end_with_parent, ignore_interrupts

def work(pipe):
    end_with_parent()
    pipe.send("started")
    pipe.recv()
    pipe.send("not interrupted")
    time.sleep(60)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what nohup starts ignores it
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs,))
    with ignore_interrupts():
        process.start()
    theirs.close()
    ours.recv()
    try:
        os.killpg(0, signal.SIGINT)  # Ctrl-C reaches all processes of a terminal
    except KeyboardInterrupt:
        ours.send("go on")
        ours.recv()
        print(process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_a_process_ignores_ctrl_c_and_does_not_outlive_its_parent(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    ended = subprocess.run(
        [sys.executable, tmp_path / "parent.py"],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL and ended.stderr == ""
    for _ in range(300):
        if not is_running(int(ended.stdout)):
            return
        time.sleep(0.1)
    raise AssertionError(f"process {ended.stdout} still runs")


def is_running(pid: int) -> bool:
    """Check that a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Finalized:
    """Garbage in a reference cycle that writes a file if another process frees it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.process = os.getpid()
        self.itself = self

    def __del__(self) -> None:
        if os.getpid() != self.process:
            self.file.write_text("freed")


def first_rows(view: View, n: int) -> torch.Tensor:
    """Select the first examples, after a garbage collection in a worker process."""
    if mp.parent_process() is not None:
        gc.collect()
    return torch.arange(n)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks processes of a study")
def test_a_forked_process_frees_no_garbage_of_its_parent(tmp_path: Path) -> None:
    """Freeing garbage may wait for threads of the parent, such as ONNX's."""
    gc.collect()
    gc.disable()
    try:
        Finalized(tmp_path / "freed")
        federation = fl.Federation("digits", "iid", sites=2)
        study = fl.compare(
            federation,
            first_rows,
            training=PLAIN,
            seeds=2,
            cycles=1,
            jobs=2,
            progress=False,
        )
    finally:
        gc.enable()
    assert study.failures == ()
    assert not (tmp_path / "freed").exists()
