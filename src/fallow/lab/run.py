"""One run: federated training, evaluation, a query and its labels, cycle by cycle; resumable."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.lab.evaluate import evaluate, pseudo_labels
from fallow.lab.files import load_tree, save_tree, write_lines
from fallow.lab.journal import Journal
from fallow.lab.phases import Phases
from fallow.lab.predict import save_model
from fallow.lab.recipe import Recipe
from fallow.lab.versions import threads, versions
from fallow.lab.world import World, local_plan
from fallow.runtimes import Label

Say = Callable[[dict[str, Any]], None]
Memo = dict[str, Any]


def silent(event: dict[str, Any]) -> None:
    """Say nothing."""


@dataclass
class Run:
    """A recipe under one seed.

    Its steps are ``0/initial``, then per cycle ``train`` and ``query``.  A finished step is one
    journal entry together with all it changed at the sites; the open step is replayed exchange by
    exchange.  So `go` may be called again after a crash at any point, in a new process, and ends
    with the same picks and weights.
    """

    world: World
    journal: Journal
    phases: Phases = field(default_factory=Phases)
    folder: Path | None = None
    say: Say = silent

    @property
    def recipe(self) -> Recipe:
        return self.world.recipe

    def first_phase(self) -> None:
        """The part of `go` that other strategies of the same seed share."""
        self.initial()
        self._phase(0, None)

    def go(self) -> list[dict[str, Any]]:
        """Run to the end from wherever the journal stands; returns one record per evaluation."""
        records: list[dict[str, Any]] = []
        memo: Memo = {}
        state: State | None = None
        spent = Spent()
        spent.add(self.initial())
        for cycle in range(self.recipe.cycles + 1):
            done = self._phase(cycle, state)
            state = self._state(done)
            spent.add(done)
            rows = [self._record(cycle, row, done, spent) for row in done["rows"]]
            if cycle < self.recipe.cycles:
                asked = self._query(cycle, memo, state)
                memo = asked["memo"]
                spent.add(asked)
                told = {"notes": memo.get("notes", {}), "pseudo_labels": asked["pseudo_labels"]}
                rows = [{**row, **told} for row in rows]
            records += rows
            if self.folder is not None:
                write_lines(self.folder / "records.jsonl", records)
            last = {k: records[-1][k] for k in ("labelled", "accuracy", "mse")}
            self.say({"event": "scored", "cycle": cycle, **last})
        if self.folder is not None:
            self.journal.tidy()
            save_model(self.folder / "model.safetensors", self.world, self._state(done))  # the end
        return records

    def _ask(self, step: str, owner: str, cycle: int, shown: Disclosure, **more: Any) -> Ask:
        reveals = self.world.methods[owner].contract.verbs
        carrier = self.world.carrier
        more |= {"reveals": reveals, "masking": self.world.masking}
        return Ask(carrier, self.journal, shown, step, owner, cycle, **more)

    # -- labels -----------------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """The first labels: random, through the same door, oracle and budget."""
        done = self.journal.finished("0/initial")
        if done is None:
            shown = Disclosure()
            ask = self._ask("0/initial", "initial", 0, shown)
            budget = self.world.budget(self.recipe.initial)
            self.world.methods["initial"].query(ask, budget, {})
            done = {"memo": {}, "revealed": shown.rows(), "seconds": 0.0}
            done = self._bought(0, "0/initial", budget, done)
        return done

    def _query(self, cycle: int, memo: Memo, state: State) -> dict[str, Any]:
        """Choose rows and buy their labels."""
        step = f"{cycle}/query"
        done = self.journal.finished(step)
        if done is None:
            self.say({"event": "query", "cycle": cycle})
            started, shown = time.perf_counter(), Disclosure()
            ask = self._ask(step, "query", cycle, shown)
            ask.fit(None, "global", None, **state)
            query = self.world.methods["query"]
            if plan := local_plan(self.recipe, query):
                ask.fit(plan, "local", None, **state)
            budget = self.world.budget(self.recipe.per_cycle)
            memo = query.query(ask, budget, memo)
            ask.flush()
            seconds = time.perf_counter() - started
            done = {"memo": memo, "revealed": shown.rows(), "seconds": seconds}
            done |= {"pseudo_labels": pseudo_labels(self.world)}
            done = self._bought(cycle, step, budget, done)
        return done

    def _bought(
        self, cycle: int, step: str, budget: dict[str, int], done: dict[str, Any]
    ) -> dict[str, Any]:
        """Ask the oracle, write the ledgers, end the cycle at the sites: one transaction."""
        members, oracle = self.world.members, self.world.oracle
        picks = {n: s.memory["picks"] for n, s in members.items() if "picks" in s.memory}
        for name, kept in picks.items():
            if len(kept["rows"]) > budget[name]:
                raise ValueError(
                    f"{self.recipe.query} picked {len(kept['rows'])} rows at site {name} in cycle "
                    f"{cycle}, beyond its budget of {budget[name]}"
                )
        oracle.submit({name: kept["rows"] for name, kept in picks.items()})
        answers = oracle.poll()
        keep = ("own/",) if self.recipe.restart == "continue" else ()
        with self.journal.transaction():
            for name, site in members.items():
                site.buy(_labels(cycle, picks.get(name, {}), answers.get(name, {})))
                site.forget(keep)
            return self.journal.finish(step, done)

    # -- training ---------------------------------------------------------------------------

    def _phase(self, cycle: int, before: State | None) -> dict[str, Any]:
        """Train for ``rounds`` rounds, or take the phase from the journal or the shared folder."""
        step = f"{cycle}/train"
        done = self.journal.finished(step)
        if done is not None:
            return done
        key = self.phases.key(self.world) if cycle == 0 else ""
        found = self.phases.load(key) if key else None
        done = found["done"] if found else self.train(cycle, before)
        if key and not found:
            memory = {name: site.memory for name, site in self.world.members.items()}
            self.phases.save(key, done, memory)
        filed = self._filed(cycle, done)
        with self.journal.transaction():
            for name, memory in found["memory"].items() if found else ():
                self.world.members[name].forget()
                for what, kept in memory.items():
                    self.world.members[name].remember(what, kept)
            return self.journal.finish(step, filed)

    def train(self, cycle: int, before: State | None) -> dict[str, Any]:
        """The rounds of one phase, whatever the journal already knows of them."""
        step, recipe, started = f"{cycle}/train", self.recipe, time.perf_counter()
        shown, rows = Disclosure(), []
        state = before
        if state is None or recipe.restart == "fresh":
            state = self.world.fresh(stream(self.world.seed, "init", cycle))
        for r in range(recipe.rounds):
            cohort = self._cohort(cycle, r)
            ask = self._ask(f"{step}/{r}", "training", cycle, shown, round=r, cohort=cohort)
            state = self.world.methods["training"].round(state, ask)
            ask.flush()
            if r >= recipe.rounds - recipe.score_rounds:
                rows.append({"round": r, "cohort": list(cohort), **evaluate(self.world, state)})
            self.say({"event": "round", "cycle": cycle, "round": r})
        return {
            "state": state, "rows": rows, "revealed": shown.rows(),
            "seconds": time.perf_counter() - started, "labels": self.world.counts(),
        }  # fmt: skip

    def _cohort(self, cycle: int, r: int) -> tuple[str, ...]:
        """The sites of a round; all of them in the last, so that each has a local model."""
        sites, share = self.world.carrier.sites, self.recipe.participation
        if share == 1 or r == self.recipe.rounds - 1:
            return sites
        n = math.ceil(share * len(sites) - 1e-9)
        drawn = torch.randperm(len(sites), generator=stream(self.world.seed, "cohort", cycle, r))
        return tuple(sites[i] for i in sorted(drawn[:n].tolist()))

    def _filed(self, cycle: int, done: dict[str, Any]) -> dict[str, Any]:
        """The phase with its model in a checkpoint; the journal holds the file's hash."""
        if self.folder is None:
            return done
        path = self.folder / "checkpoints" / f"cycle-{cycle}.safetensors"
        sha256 = save_tree(path, {"state": done["state"]})
        return {**done, "state": {"file": path.name, "sha256": sha256}}

    def _state(self, done: dict[str, Any]) -> State:
        state: State = done["state"]
        if self.folder is not None and "file" in state:
            path = self.folder / "checkpoints" / str(state["file"])
            state = load_tree(path, self.folder, str(state["sha256"]))["state"]
        return state

    def _record(self, cycle: int, row: dict[str, Any], done: dict[str, Any], spent: Spent) -> Any:
        labels = done["labels"]
        by_class = [sum(c) for c in zip(*labels.values(), strict=True)]
        return {
            "recipe": self.recipe.name, "query": str(self.recipe.query),
            "training": str(self.recipe.training), "seed": self.world.seed, "cycle": cycle,
            "point": "post_agg", **row, "labelled": sum(map(sum, labels.values())),
            "labels_validation": None, "pool": sum(self.world.sizes.values()),
            "labelled_per_site": labels,
            "labelled_per_class": by_class if self.world.dataset.classes else None,
            "seconds": spent.seconds, "bytes_up": spent.shown.bytes_up,
            "bytes_down": spent.shown.bytes_down, "revealed": spent.shown.rows(),
            "executor": self.world.executor, "threads": threads(), "versions": versions(),
            "notes": {}, "pseudo_labels": None, "final": True,
        }  # fmt: skip


@dataclass
class Spent:
    """Seconds, bytes and disclosures of all steps so far."""

    seconds: float = 0.0
    shown: Disclosure = field(default_factory=Disclosure)

    def add(self, done: dict[str, Any]) -> None:
        self.seconds += done["seconds"]
        self.shown = self.shown.plus(Disclosure.of(done["revealed"]))


def _labels(cycle: int, kept: State, answers: dict[int, float]) -> list[Label]:
    """Ledger lines for the answers to one site's picks, with what the query attached to them."""
    if not kept:
        return []
    rows = kept["rows"].tolist()
    weight = kept["weight"].tolist() if "weight" in kept else [1.0] * len(rows)
    chance = kept["probability"].tolist() if "probability" in kept else [None] * len(rows)
    lines = zip(rows, weight, chance, strict=True)
    return [Label(row, answers[row], cycle, w, p) for row, w, p in lines if row in answers]
