"""Measure what can be read from sums and models: the table of docs/disclosure.md.

    python scripts/measure_disclosure.py --data-dir DATA                  # all rows
    python scripts/measure_disclosure.py --data-dir DATA --sums exact     # without noise
    python scripts/measure_disclosure.py --data-dir DATA --sums 8 heart   # some of them

Each case is one run of closed-form training, attacked by the setting ``measure=["disclosure"]``, or of
boosted trees (``trees`` and ``numbers``).  All labels are in one training phase, but for ``releases``,
where four phases each add one label per site, and for trees, where a second phase does.  With noise,
which trees do not have, delta is 1e-5 for a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import fallow as fl
from fallow.experiment.encoding import encode_as_trained
from fallow.measurements.results import AttackResult

ROOT = Path(__file__).resolve().parents[1]
DELTA = 1e-5
LABELS = {
    "heart": 3,
    "columns": 6,
    "releases": 2,
    "digits": 4,
    "pooled": 2,
    "mnist": 2,
    "given": 8,
    "embeddings": 4,
    "text": 4,
    "trees": 10,
    "numbers": 10,
}
"""Initial labels at each of the sites, which are three; four hospitals of the heart table."""
TREES = ("trees", "numbers")
"""Cases with boosted trees, for classes and for regression."""
SUMS = ("exact", "64", "8", "1")
"""Exact sums, and sums with noise of this epsilon."""


def load_case(name: str, data_dir: Path) -> tuple[Any, Any]:
    """Return the federated dataset of a case and its encoder."""
    if name == "heart":
        return fl.Federation(fl.load("heart", data_dir=data_dir)), fl.Fourier()
    if name == "numbers":
        data = fl.load("elevators", data_dir=data_dir)
        return fl.Federation(data, fl.IID(), sites=3), None
    if name == "trees":
        return fl.Federation(fl.load("heart", data_dir=data_dir)), None
    if name in ("columns", "releases"):
        return fl.Federation(fl.load("heart", data_dir=data_dir)), fl.Identity()
    if name == "digits":
        return fl.Federation(fl.load("digits"), fl.IID(), sites=3), fl.Convolution()
    if name in ("mnist", "pooled"):
        data = fl.load("mnist", data_dir=data_dir)
        if name == "pooled":
            x = torch.nn.functional.avg_pool2d(data.x[:2_000], 2)  # 14 x 14
            data = fl.from_arrays(x.numpy(), data.y[:2_000].numpy())
        return fl.Federation(data, fl.IID(), sites=3), fl.Convolution()
    if name == "given":  # 30 features of pictures of cells, computed elsewhere
        data = fl.load("breast_cancer")
        return fl.Federation(data, fl.IID(), sites=3), fl.Identity()
    if name == "embeddings":  # digits by the filters of Convolution, computed before
        data = fl.load("digits")
        return fl.Federation(embed(data), fl.IID(), sites=3), fl.Identity()
    texts, pages = read_paragraphs()
    frame = pd.DataFrame({"text": texts, "page": pages})
    data = fl.from_frame(frame, label="page", columns=["text"], name="paragraphs")
    return fl.Federation(data, fl.IID(), sites=3), fl.HashedText()


def embed(data: fl.Dataset) -> fl.Dataset:
    """Return pictures of 8 x 8 pixels as the features that `Convolution` computes of them."""
    fitted = fl.run(
        fl.Federation(data, fl.IID(), sites=3),
        fl.Random(),
        encoder=fl.Convolution(),
        training=fl.ClosedForm(unlabeled="off"),
        initial=4,
        cycles=0,
        progress=False,
    )
    saved = fitted.saved
    x = encode_as_trained(fitted.config, saved, data.x)
    return fl.from_arrays(x.double().numpy(), data.y.numpy())


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


def measure(name: str, sums: str, data_dir: Path) -> Iterator[AttackResult]:
    """Yield the attacks on one run."""
    settings: dict[str, Any] = {"training": fl.ClosedForm(unlabeled="off")}
    if sums != "exact":
        settings["training"] = fl.ClosedForm(delta=DELTA)
        settings["privacy"] = fl.Privacy(epsilon=float(sums))
    settings["cycles"] = 0
    if name == "releases":
        settings |= {"cycles": 4, "budget": 1}
    if name in TREES:
        settings |= {"training": fl.BoostedTrees(), "cycles": 1, "budget": 1}
    if name == "mnist":
        settings["rows"] = 2_000
    federation, encoder = load_case(name, data_dir)
    run = fl.run(
        federation,
        fl.Random(),
        encoder=encoder,
        initial=LABELS[name],
        measure=["disclosure"],
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
    parser.add_argument(
        "--sums", action="append", choices=SUMS, help="exact, or epsilon; default: all"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | sums | attacker sees | numbers / values | read | near | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.cases or LABELS:
        for sums in chosen.sums or SUMS:
            if sums != "exact" and name in TREES:
                continue
            for attack in measure(name, sums, chosen.data_dir):
                ratio = attack["numbers"] / attack["unknowns"]
                n = attack["rows"]
                print(
                    f"| {name} | {sums} | {attack['attack']} | {ratio:.3g} | "
                    f"{attack['read']} of {n} | {attack['near']} of {n} | "
                    f"{attack['seconds']:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
