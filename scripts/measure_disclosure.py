"""Measure what can be read from sums and models: the table of docs/disclosure.md.

    python scripts/measure_disclosure.py --data-dir DATA            # all rows, about 20 CPU minutes
    python scripts/measure_disclosure.py --data-dir DATA --exact    # without noise
    python scripts/measure_disclosure.py --data-dir DATA heart text # some of them

Each case is one run of closed-form training with all labels in one training phase, attacked by the
setting ``measure="disclosure"``.  With noise, delta is 1e-5.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import fallow as fl
from fallow.measurements.results import AttackResult

ROOT = Path(__file__).resolve().parents[1]
DELTA = 1e-5
LABELS = {"heart": 3, "columns": 6, "digits": 4, "mnist": 2, "given": 8, "text": 4}
"""Labels at each of the sites, which are three; four hospitals of the heart table."""
EPSILONS = (None, 64.0, 8.0, 1.0)
FEWER = {
    "columns": (None,),
    "digits": (None, 8.0),
    "mnist": (None, 8.0),
    "given": (None, 8.0),
    "text": (None, 8.0),
}


def load_case(name: str, data_dir: Path) -> tuple[Any, Any]:
    """Return the federated dataset of a case and its encoder."""
    if name == "heart":
        return fl.Federation(fl.load("heart", data_dir=data_dir)), fl.Fourier()
    if name == "columns":
        return fl.Federation(fl.load("heart", data_dir=data_dir)), fl.Identity()
    if name == "digits":
        return fl.Federation(fl.load("digits"), fl.IID(), sites=3), fl.Convolution()
    if name == "mnist":
        data = fl.load("mnist", data_dir=data_dir)
        return fl.Federation(data, fl.IID(), sites=3), fl.Convolution()
    if name == "given":  # 30 features of pictures of cells, computed elsewhere
        data = fl.load("breast_cancer")
        return fl.Federation(data, fl.IID(), sites=3), fl.Identity()
    texts, pages = read_paragraphs()
    frame = pd.DataFrame({"text": texts, "page": pages})
    data = fl.from_frame(frame, label="page", columns=["text"], name="paragraphs")
    return fl.Federation(data, fl.IID(), sites=3), fl.HashedText()


def read_paragraphs() -> tuple[list[str], list[str]]:
    """Return paragraphs of two pages of the documentation, and the name of the page of each."""
    texts = []
    pages = []
    for page in ("threats", "load-data", "operating", "settings", "results", "installing"):
        for paragraph in (ROOT / "docs" / f"{page}.md").read_text().split("\n"):
            if len(paragraph) > 60 and paragraph[0].isalpha():
                texts.append(paragraph[:500])
                pages.append(page)
    return texts, pages


def measure(name: str, epsilon: float | None, data_dir: Path) -> Iterator[AttackResult]:
    """Yield the attacks on one run."""
    settings: dict[str, Any] = {"training": fl.ClosedForm()}
    if epsilon is not None:
        settings["training"] = fl.ClosedForm(delta=DELTA)
        settings["privacy"] = fl.Privacy(epsilon=epsilon)
    if name == "mnist":
        settings["rows"] = 2_000
    federation, encoder = load_case(name, data_dir)
    run = fl.run(
        federation,
        fl.Random(),
        encoder=encoder,
        initial=LABELS[name],
        cycles=0,
        measure="disclosure",
        progress=False,
        **settings,
    )
    yield from run.records["disclosure"].iloc[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(LABELS)}; default: all")
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder with data files"
    )
    parser.add_argument("--exact", action="store_true", help="without noise only")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | epsilon | attacker sees | numbers / values | read | near | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.cases or LABELS:
        for epsilon in (None,) if chosen.exact else FEWER.get(name, EPSILONS):
            for attack in measure(name, epsilon, chosen.data_dir):
                how = "exact" if epsilon is None else f"{epsilon:g}"
                ratio = attack["numbers"] / attack["unknowns"]
                n = attack["rows"]
                print(
                    f"| {name} | {how} | {attack['attack']} | {ratio:.3g} | "
                    f"{attack['read']} of {n} | {attack['near']} of {n} | "
                    f"{attack['seconds']:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
