"""One run: training, evaluation, query and labeling in cycles, resumable at any point."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.events import EventHandler, ignore_event
from fallow.core.exchange_key import ExchangeKey, StepName
from fallow.core.methods import FinalTraining, Memo, methods_by_owner, select_sent
from fallow.core.streams import stream
from fallow.core.types import SiteId, State, Values
from fallow.encoders.base import EMPTY_CELLS
from fallow.experiment.curve import decide_stop
from fallow.experiment.encoding import add_encoder
from fallow.experiment.environment import Environment
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import (
    FinishedEvaluation,
    FinishedModel,
    FinishedPhase,
    FinishedQuery,
    FinishedStop,
    Phases,
    SavedModel,
    TrainedModel,
    TrainedPhase,
)
from fallow.experiment.measuring import choose_kept, find_measurements, restore_kept
from fallow.experiment.methods import local_training_config
from fallow.experiment.scale import Scale
from fallow.experiment.scoring import score_selection
from fallow.experiment.steps import AccumulatedCosts, add_queries, build_record, cohort_of
from fallow.measurements.disclosure import select_sums
from fallow.measurements.evaluation_set import KEPT as OUTLOOK
from fallow.measurements.evaluation_set import STREAM, describe_tallies
from fallow.settings.config import DISCLOSURE, ExperimentConfig
from fallow.settings.stopping import parse_stop
from fallow.storage.files import load_tree, save_tree, write_json_lines

if TYPE_CHECKING:
    from fallow.experiment.record import Evaluation, Record


def save_model(
    path: Path,
    simulation: Environment,
    state: State | None,
    sites: Mapping[SiteId, State],
    results: Mapping[str, object],
) -> None:
    """Save the global model, if any, and the personalized models of ``sites``, with data
    for prediction.

    These are classes, columns, shape, encoder, scaling and ``results`` of measurements.
    """
    model: TrainedModel = {
        "state": state,
        "example_spec": simulation.example_spec,
        "scale": None,
        "targets": simulation.targets,
    }
    if simulation.scale is not None:
        model["scale"] = simulation.scale.state
    add_encoder(model, simulation.methods.get("encoder"), simulation.encoded_by)
    model["sites"] = dict(sites)
    save_tree(path, {**model, **results})


MEASURED = "measure"
"""Step with the results of the setting ``measure``."""


def _training_step(cycle: int) -> str:
    """Return the name of the training phase of a cycle in the event log."""
    return ExchangeKey("train", "round", cycle=cycle).phase_name


INITIAL = ExchangeKey("initial", "initial")
TUNED = ExchangeKey("tuned", "tune")
"""Step in which a field of the encoder is tuned on the initial labeled set."""


@dataclass
class ExperimentRun:
    """Experiment with one seed.

    The steps are ``0/initial``, and ``train`` and ``query`` in each cycle.  A finished step is one
    entry of the event log, together with all changes at the sites.  An unfinished step is replayed
    by exchange.  `go` may therefore be called again after a crash, in a new process, and yields the
    same selected examples and weights.
    """

    simulation: Environment
    event_log: EventLog
    phases: Phases = field(default_factory=Phases)
    folder: Path | None = None
    notify: EventHandler = ignore_event

    @property
    def config(self) -> ExperimentConfig:
        return self.simulation.config

    @property
    def _trains(self) -> bool:
        return self.simulation.methods["training"].contract.trains

    def first_phase(self) -> None:
        """Run the part of `go` that all strategies of a seed share."""
        self.initial()
        self._phase(0, None)

    def go(self) -> list[Record]:
        """Start or resume the run, and return one record per evaluation."""
        records: list[Record] = []
        memo: Memo = {}
        state: State | None = None
        spent = AccumulatedCosts()
        spent.add(self.initial())
        for cycle in range(self.config.cycles + 1):
            done = self._phase(cycle, state)
            state = self._load_state(done)
            spent.add(done)
            of_cycle = self._build_records(cycle, done, spent)
            stopped = self._decide_stop(cycle, [*records, *of_cycle])
            if stopped is not None:
                of_cycle[-1]["stopped"] = stopped
            elif cycle < self.config.cycles:
                queries = list(self._queries(cycle, memo, state))
                spent.add(*queries)
                memo = queries[-1]["memo"]
                for record in of_cycle:
                    add_queries(record, queries)
                if "evaluation_set" in self.simulation.methods:
                    evaluation = self._tally(cycle)
                    spent.add(evaluation)
                    of_cycle[-1]["evaluation_set"] = evaluation["evaluation_set"]
            if stopped is not None or cycle == self.config.cycles:
                self._measure(cycle, state, of_cycle[-1])
            records += of_cycle
            self._write_records(cycle, records)
            if stopped is not None:
                self.notify({"event": "enough", "cycle": cycle, "reason": stopped})
                break
        self._save_model(done)
        return records

    def _decide_stop(self, cycle: int, records: Sequence[Record]) -> str | None:
        """Return the reason to stop after a cycle, or None to continue.

        The decision is stored, so that it is the same after a restart.
        """
        if self.config.stop is None or cycle == self.config.cycles:
            return None
        step = f"{cycle}/stop"
        decided = cast(FinishedStop | None, self.event_log.load_step(step))
        if decided is None:
            decided = decide_stop(parse_stop(self.config.stop), records)
            decided = self.event_log.finish(step, decided)
        if not decided["is_over"]:
            return None
        return decided["reason"]

    def one_pass(self, cycle: int) -> list[Record]:
        """Select from scratch with the budget of all cycles so far, and train on the labels."""
        config = self.config
        spent = AccumulatedCosts()
        spent.add(self.initial())
        bought: Counter[SiteId] = Counter()
        for earlier in range(cycle):
            bought.update(self.simulation.budget_for(config.budget_of(earlier)))
        budget = dict(bought)
        if config.initial_by == "query":
            first = self.simulation.budget_for(config.initial)
            budget = {site: n + first[site] for site, n in budget.items()}
        state = self.simulation.fresh(stream(self.simulation.seed, "init", cycle))
        query = self._query(cycle - 1, 0, {}, state, budget)
        spent.add(query)
        done = self._phase(cycle, None)
        spent.add(done)
        records = self._build_records(cycle, done, spent)
        for record in records:
            add_queries(record, [query])
        self._measure(cycle, self._load_state(done), records[-1])
        self._write_records(cycle, records)
        self._save_model(done)
        return records

    def _measure(self, cycle: int, state: State, record: Record) -> None:
        """Add the measurement of the setting ``measure`` to the last record of a run."""
        if DISCLOSURE not in self.config.measure:
            return
        known = self.event_log.load_step(MEASURED)
        if known is None:
            sums: list[Values] = []
            for earlier in range(cycle + 1):
                step = _training_step(earlier)
                done = cast(FinishedPhase | None, self.event_log.load_step(step))
                sums.append({} if done is None else done["sums"])
            attacks = self.simulation.measure_disclosure(sums, state)
            known = self.event_log.finish(MEASURED, {"disclosure": attacks})
        record["disclosure"] = known["disclosure"]

    def _build_records(
        self, cycle: int, done: FinishedPhase, spent: AccumulatedCosts
    ) -> list[Record]:
        """Return a record for each evaluated round of the cycle."""
        return [
            build_record(self.simulation, cycle, row, done, spent) for row in done["rows"]
        ]

    def _write_records(self, cycle: int, records: Sequence[Record]) -> None:
        if self.folder is not None:
            write_json_lines(self.folder / "records.jsonl", records)
        last = records[-1]
        self.notify(
            {
                "event": "scored",
                "cycle": cycle,
                "labeled": last["labeled"],
                "accuracy": last["accuracy"],
                "mse": last["mse"],
                "distance": last.get("distance"),
                "bytes_up": last["bytes_up"],
                "bytes_down": last["bytes_down"],
                "epsilon": sum(row.get("epsilon", 0.0) for row in last["revealed"]),
            }
        )

    def _save_model(self, done: FinishedPhase) -> None:
        """Write the model file; the model is logged first, since it may depend on the sites' memory."""
        if self.folder is None:
            return
        measurements = find_measurements(
            self.config, is_regression=not self.simulation.classes
        )
        kept = choose_kept(measurements, done["rows"][-1])
        last: FinishedModel | None = self.event_log.load_step("model")
        if last is None:
            state = self._load_state(done)
            common = self.simulation.one_model(self.event_log, state, kept)
            own = self.simulation.own_models(state)
            if not self._trains:
                common = None
            last = self.event_log.finish("model", FinishedModel(state=common, sites=own))
        self.event_log.tidy()
        sites = last.get("sites", {})
        file = self.folder / "model.safetensors"
        results = restore_kept(measurements, kept)
        save_model(file, self.simulation, last["state"], sites, results)

    def _ask(
        self,
        key: ExchangeKey,
        owner: str,
        cycle: int,
        shown: Disclosure,
        *,
        cohort: tuple[SiteId, ...] = (),
    ) -> Ask:
        """Return the interface to the sites for one step of an algorithm.

        ``cohort`` contains the sites of a round; () means all sites.
        """
        ask = Ask(
            channel=self.simulation.channel,
            event_log=self.event_log,
            disclosure=shown,
            key=key,
            owner=owner,
            cycle=cycle,
            cohort=cohort,
            reveals=methods_by_owner(self.simulation.methods)[owner].contract.disclosures,
            masking=self.simulation.masking,
        )
        ask.cohort = self.simulation.attending_sites(key, ask.cohort)
        return ask

    # -- labels -----------------------------------------------------------------------------

    def initial(self) -> FinishedQuery:
        """Fit encoder and feature scaling, and acquire the initial labeled set."""
        config = self.config
        done: FinishedQuery | None = self.event_log.load_step(INITIAL.phase_name)
        if done is None:
            shown = Disclosure()
            encoded = self._fit_encoder(shown)
            scale = None
            if "tuning" not in self.simulation.methods:
                scale = self._prepare_rows(INITIAL, encoded, shown)
            ask = self._ask(INITIAL, "initial", 0, shown)
            share = config.initial
            if config.initial_by == "query":  # then the first query selects them
                share = 0
            budget = self.simulation.cap_budget(self.simulation.budget_for(share))
            if any(budget.values()):
                self.simulation.methods["initial"].query(ask, budget, {})
            done = {"memo": {}, "revealed": shown.rows(), "seconds": 0.0, "scale": scale}
            if encoded is not None:
                done["encoder"] = encoded
            done = self._buy_labels(-1, INITIAL, budget, done)
        if "tuning" in self.simulation.methods:
            done = self._tune_encoder(done)
        if self.simulation.encoded_by is None and "encoder" in done:
            self.simulation = self.simulation.with_encoder(done["encoder"])
        if self.simulation.scale is None and done["scale"]:
            self.simulation = self.simulation.in_units(Scale(**done["scale"]))
        return done

    def _fit_encoder(self, shown: Disclosure) -> State | None:
        """Return the state of the fitted encoder, or None without an encoder."""
        methods = self.simulation.methods
        if "encoder" not in methods:
            return None
        fill: State = {}
        if "filling" in methods:
            ask = self._ask(replace(INITIAL, step="cells"), "filling", 0, shown)
            fill[EMPTY_CELLS] = methods["filling"].agree(ask)
        ask = self._ask(replace(INITIAL, step="encoder"), "encoder", 0, shown)
        shape = tuple(self.simulation.example_spec["shape"])
        return {**methods["encoder"].fit(ask, shape), **fill}

    def _prepare_rows(
        self, phase: ExchangeKey, encoded: State | None, shown: Disclosure
    ) -> State | None:
        """Send the encoder to the sites, and compute the feature scaling; None without scaling."""
        methods = self.simulation.methods
        if encoded is not None and "encoding" in methods:
            ask = self._ask(replace(phase, step="encode"), "encoding", 0, shown)
            methods["encoding"].hand_over(ask, encoded)
        is_scaled = self.simulation.is_standardized
        missing = self.simulation.missing
        if encoded is not None:
            missing = None  # imputed before encoding, and complete afterwards
        if not is_scaled and missing is None:
            return None
        ask = self._ask(replace(phase, step="features"), "scaling", 0, shown)
        return methods["scaling"].of_features(ask, missing, is_scaled=is_scaled)

    def _tune_encoder(self, first: FinishedQuery) -> FinishedQuery:
        """Tune the encoder on the initial labeled set, and encode and scale the examples again."""
        done = cast(FinishedQuery | None, self.event_log.load_step(TUNED.phase_name))
        if done is None:
            shown = Disclosure()
            started = time.perf_counter()
            targets: State | None = None
            if "scaling" in self.simulation.methods:  # losses are in units of the labels
                ask = self._ask(replace(TUNED, step="targets"), "scaling", 0, shown)
                targets = self.simulation.agree_on_targets(ask)
            ask = self._ask(TUNED, "tuning", 0, shown)
            fitted = dict(first["encoder"])
            fill: State = {}
            if EMPTY_CELLS in fitted:
                fill[EMPTY_CELLS] = fitted.pop(EMPTY_CELLS)
            encoded = {**self.simulation.methods["tuning"].tune(ask, fitted), **fill}
            scale = self._prepare_rows(TUNED, encoded, shown)
            done = {
                "memo": {},
                "revealed": shown.rows(),
                "seconds": time.perf_counter() - started,
                "scale": scale,
                "encoder": encoded,
                "targets": targets,
            }
            done = self.event_log.finish(TUNED.phase_name, done)
        # sites have this scaling by now; training keeps it
        if self.simulation.targets is None:
            self.simulation = self.simulation.with_targets(done["targets"])
        return {
            **first,
            "revealed": [*first["revealed"], *done["revealed"]],
            "seconds": first["seconds"] + done["seconds"],
            "scale": done["scale"],
            "encoder": done["encoder"],
        }

    def _queries(self, cycle: int, memo: Memo, state: State) -> Iterator[FinishedQuery]:
        """Run the queries of a cycle, without training between them."""
        parts = self.config.queries_per_cycle
        budget = self.simulation.budget_for(self.config.budget_of(cycle))
        for part in range(parts):
            # the increment over earlier parts, so that all parts together are the budget
            share: dict[SiteId, int] = {}
            for site, n in budget.items():
                share[site] = n * (part + 1) // parts - n * part // parts
            done = self._query(cycle, part, memo, state, share)
            memo = done["memo"]
            yield done

    def _query(
        self, cycle: int, part: int, memo: Memo, state: State, share: Mapping[SiteId, int]
    ) -> FinishedQuery:
        """Select examples and acquire their labels; the models of the first query are reused."""
        step = ExchangeKey("query", "query", cycle=cycle, part=part)
        done: FinishedQuery | None = self.event_log.load_step(step.phase_name)
        if done is not None:
            return done
        self.notify({"event": "query", "cycle": cycle})
        started = time.perf_counter()
        shown = Disclosure()
        strategy = self.simulation.methods["query"]
        turn = cycle * self.config.queries_per_cycle + part
        ask = self._ask(step, "query", turn, shown)
        if part == 0 and self._trains:
            sent = select_sent(self.simulation.methods, state)
            ask.fit(None, "global", None, **sent)
            training_config = local_training_config(self.config, strategy)
            if training_config is not None:
                ask.fit(training_config, "local", None, **sent)
        budget = share
        if not self.simulation.is_shared:
            budget = self.simulation.cap_budget(share)
        to_choose = budget
        drawn: dict[SiteId, int] = {}
        if "evaluation_set" in self.simulation.methods:
            draw = stream(self.simulation.seed, STREAM, cycle)
            drawn = self.simulation.methods["evaluation_set"].divide(budget, draw)
            to_choose = {site: n - drawn[site] for site, n in budget.items()}
        memo = strategy.query(ask, to_choose, memo)
        ask.flush()
        if "evaluation_set" in self.simulation.methods:
            draws = ExchangeKey("query", "draw", cycle=cycle)
            beside = self._ask(draws, "evaluation_set", cycle, shown, cohort=ask.cohort)
            self.simulation.methods["evaluation_set"].draw_rows(beside, budget, drawn)
        seconds = time.perf_counter() - started
        done = {
            "memo": memo,
            "revealed": shown.rows(),
            "seconds": seconds,
            "pseudo_labels": None,
        }
        if part == 0 and self._trains:
            done["pseudo_labels"] = self.simulation.pseudo_labels()
        keep: tuple[str, ...] = ()
        if part < self.config.queries_per_cycle - 1:
            keep = ("local", "global")  # for later parts
        return self._buy_labels(cycle, step, budget, done, keep)

    def _buy_labels(
        self,
        cycle: int,
        step: ExchangeKey,
        budget: Mapping[SiteId, int],
        done: FinishedQuery,
        keep: tuple[str, ...] = (),
    ) -> FinishedQuery:
        """Acquire the labels of selected examples; sites keep ``keep`` in memory after the cycle."""
        if self.config.restart == "continue":
            keep = (*keep, "own/", "average")
        if "evaluation_set" in self.simulation.methods:
            keep = (*keep, OUTLOOK)
        return self.simulation.buy_labels(self.event_log, cycle, step, budget, done, keep)

    def _tally(self, cycle: int) -> FinishedEvaluation:
        """Return the error of the cycle's model on the evaluation set, before training on it."""
        step = ExchangeKey("evaluation", "tally", cycle=cycle)
        done = cast(FinishedEvaluation | None, self.event_log.load_step(step.phase_name))
        if done is not None:
            return done
        started = time.perf_counter()
        shown = Disclosure()
        ask = self._ask(step, "evaluation_set", cycle, shown)
        budget = self.simulation.budget_for(self.config.budget_of(cycle))
        # average number of examples per drawn row, so that weights are about 1
        unit = sum(self.simulation.sizes.values()) / (
            self.config.evaluation_fraction * sum(budget.values())
        )
        replies = self.simulation.methods["evaluation_set"].tally_errors(ask, unit)
        done = {
            "evaluation_set": describe_tallies(replies, unit, self._error_scale()),
            "revealed": shown.rows(),
            "seconds": time.perf_counter() - started,
        }
        return self.event_log.finish(step.phase_name, done)

    def _error_scale(self) -> float | None:
        """Return the factor that converts squared errors to units of the variance; None for classes."""
        if self.simulation.classes:
            return None
        unit = 1.0
        if self.simulation.targets is not None:
            unit = float(self.simulation.targets["std"]) ** 2
        return unit / (self.simulation.variance or 1.0)

    # -- training ---------------------------------------------------------------------------

    def _phase(self, cycle: int, before: State | None) -> FinishedPhase:
        """Train for ``rounds`` rounds, or load the phase from the event log or the cache."""
        step = ExchangeKey("train", "round", cycle=cycle).phase_name
        done: FinishedPhase | None = self.event_log.load_step(step)
        if done is not None:
            self.simulation = self.simulation.with_targets(done["targets"])
            return done
        if cycle == 0:
            trained, memory = self.simulation.first_phase(
                self.phases, lambda: self.train(0, before)
            )
        else:
            trained = self.train(cycle, before)
            memory = None
        self.simulation = self.simulation.with_targets(trained["targets"])
        filed = self._save_checkpoint(cycle, trained)
        with self.event_log.transaction():
            self.simulation.restore(memory)
            return self.event_log.finish(step, filed)

    def train(self, cycle: int, before: State | None) -> TrainedPhase:
        """Run the rounds of one training phase, replaying those in the event log."""
        config = self.config
        started = time.perf_counter()
        shown = Disclosure()
        rows: list[Evaluation] = []
        state = before
        if state is None or config.restart == "fresh":
            state = self.simulation.fresh(stream(self.simulation.seed, "init", cycle))
        is_without_units = self.simulation.targets is None
        if self._trains and is_without_units and "scaling" in self.simulation.methods:
            key = ExchangeKey("train", "targets", cycle=cycle)
            ask = self._ask(key, "scaling", cycle, shown)
            self.simulation = self.simulation.with_targets(
                self.simulation.agree_on_targets(ask)
            )
        for r in range(config.rounds):
            state = self._round(cycle, r, state, shown)
            if r >= config.rounds - config.score_rounds:
                rows.append(self._score(cycle, r, state, shown))
            self.notify({"event": "round", "cycle": cycle, "round": r})
        trained: TrainedPhase = {
            "state": state,
            "rows": rows,
            "revealed": shown.rows(),
            "seconds": time.perf_counter() - started,
            "labels": self.simulation.counts(),
            "targets": self.simulation.targets,
            "validation": self.simulation.n_validation,
        }
        if DISCLOSURE in self.config.measure:
            aggregates = self.event_log.load_aggregates(_training_step(cycle))
            trained["sums"] = select_sums(aggregates)
        return trained

    def _score(self, cycle: int, r: int, state: State, shown: Disclosure) -> Evaluation:
        """Return the scores of a round: of the model, or of the selection without training."""
        if not self._trains:
            return score_selection(self.simulation, cycle, r, state)
        return self.simulation.score_round(self.event_log, shown, cycle, r, state)

    def _round(self, cycle: int, r: int, state: State, shown: Disclosure) -> State:
        """Run one round, update the best model of each site, and finalize after the last round."""
        training = self.simulation.methods["training"]
        key = ExchangeKey("train", "round", cycle=cycle, round=r)
        cohort = cohort_of(self.simulation, cycle, r)

        def ask_as(owner: str, step: StepName, shown: Disclosure) -> Ask:
            return self._ask(replace(key, step=step), owner, cycle, shown, cohort=cohort)

        ask = ask_as("training", "round", shown)
        with self.simulation.hold_back_fresh(cycle, r):
            state = training.round(state, ask)
            ask.flush()
        if self.config.validation:  # evaluation does not count among the bytes of the run
            ask = ask_as("retention", "best", Disclosure())
            ask.keep(
                self.simulation.methods["retention"].best,
                w=state["w"],
                stats=state["stats"],
                turn=r,
            )
        if r == self.config.rounds - 1 and isinstance(training, FinalTraining):
            ask = ask_as("training", "last", shown)
            training.last(state, ask)
            ask.flush()
        if r == self.config.rounds - 1 and "head" in self.simulation.methods:
            ask = ask_as("head", "head", shown)
            state = self.simulation.methods["head"].solve(state, ask)
            ask.flush()
        return state

    def _save_checkpoint(self, cycle: int, trained: TrainedPhase) -> FinishedPhase:
        """Write the model to a checkpoint whose hash is stored in the event log."""
        state: State | SavedModel = trained["state"]
        if self.folder is not None:
            path = self.folder / "checkpoints" / f"cycle-{cycle}.safetensors"
            sha256 = save_tree(path, {"state": state})
            state = SavedModel(file=path.name, sha256=sha256)
        filed: FinishedPhase = {
            "state": state,
            "rows": trained["rows"],
            "revealed": trained["revealed"],
            "seconds": trained["seconds"],
            "labels": trained["labels"],
            "targets": trained["targets"],
            "validation": trained["validation"],
        }
        if "sums" in trained:
            filed["sums"] = trained["sums"]
        return filed

    def _load_state(self, done: FinishedPhase) -> State:
        state = done["state"]
        if self.folder is None or "file" not in state:
            return cast(State, state)
        saved = cast(SavedModel, state)
        path = self.folder / "checkpoints" / saved["file"]
        loaded: State = load_tree(path, self.folder, saved["sha256"])["state"]
        return loaded
