"""CPU time of the checks of replies in simulations: ``python -m bench.reply_checks``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import fallow as fl
from fallow.cli.app import build_app
from fallow.sites import in_process

LIMIT = 0.02
"""Largest share of the CPU time."""


@contextmanager
def measured(spent: list[float]) -> Iterator[None]:
    """Add up the CPU seconds of each check."""
    check = in_process.check_replies

    def check_and_measure(*args: object) -> None:
        begin = time.thread_time()
        check(*args)  # type: ignore[arg-type]
        spent.append(time.thread_time() - begin)

    with patch.object(in_process, "check_replies", check_and_measure):
        yield


def run_demo() -> None:
    """Run ``fallow demo --fast --jobs 1``."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["demo", "--fast", "--jobs", "1", "--quiet", "--out", folder]
        build_app()(command, standalone_mode=False)


def run_closed_form() -> None:
    """Run a closed-form study with 2,000 features."""
    sites = fl.Federation(fl.load("digits"), fl.Dirichlet(0.5), sites=10)
    encoder = fl.encoders.Fourier(features=2000)
    fl.run(
        sites,
        "random",
        encoder=encoder,
        training="closed-form:unlabeled=off",
        budget=10,
        cycles=3,
        progress=False,
    )


def main() -> int:
    """Print both shares, and return 1 if one is above the limit."""
    studies: dict[str, Callable[[], None]] = {
        "fallow demo --fast --jobs 1": run_demo,
        "closed form, 2,000 features": run_closed_form,
    }
    is_slow = False
    for name, run in studies.items():
        spent: list[float] = []
        begin = time.process_time()
        with measured(spent):
            run()
        if not spent:
            raise RuntimeError(f"{name}: no reply was checked")
        total = time.process_time() - begin
        share = sum(spent) / total
        is_slow = is_slow or share > LIMIT
        print(
            f"{name}: {sum(spent):.3f} of {total:.1f} CPU seconds in {len(spent)} exchanges, "
            f"{100 * share:.2f} %"
        )
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main())
