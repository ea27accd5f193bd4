"""Limits of a site on the coordinator's requests: the agreed configuration and nothing more.

All limits are computed from the site's own copy of the agreement and counted in its own ledger. No
content of an instruction can raise a limit.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from torch import Tensor

from fallow.core.client import (
    Declaration,
    declared,
    find_wrong_argument,
    list_label_counts,
)
from fallow.core.contract import Contract
from fallow.core.exchange_key import ExchangeKey
from fallow.core.fit_declarations import LOCAL
from fallow.core.messages import KEYS, Request, Step
from fallow.core.methods import (
    Method,
    declared_state,
    methods_by_owner,
    site_function,
)
from fallow.core.refusal import Refusal, explain_errors
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, State, Value
from fallow.core.values import SenderFacts
from fallow.deployment.agreement import Agreement
from fallow.deployment.building import BuiltStudy
from fallow.deployment.ledger import Ledger
from fallow.deployment.site.budget import Budget
from fallow.deployment.site.schedule import InstructionPosition, RunSchedule
from fallow.experiment.methods import is_shared, local_training_config
from fallow.storage.files import digest_of

ROUNDED = 1e-6
"""Rounding error of arguments that are computed from aggregates."""
PARTS = ("w", "stats")
"""Parts of a global model."""
FITS = 6  # instructions of a step that train or send models


@dataclass(frozen=True)
class InstructionNotes:
    """Facts that the ledger stores when an instruction is done.

    ``rows_of_all`` is the largest total number of rows that the instruction implies. ``scored`` is
    the hash of the scored model.
    """

    scored: str | None = None
    rows_of_all: int | None = None


@final
@dataclass(frozen=True)
class SiteLimits:
    """Limits of one site.

    ``describes`` is whether it describes its data, ``rows`` its number of rows, ``width`` the number
    of features, and ``scores`` the largest number of scored models over all runs.
    """

    agreement: Agreement
    made: BuiltStudy
    ledger: Ledger
    rows: int
    width: int
    scores: int | None = None
    describes: bool = True

    @cached_property
    def schedule(self) -> RunSchedule:
        """Return the exchanges of the agreed configuration."""
        return RunSchedule(self.agreement.config, self.made.methods)

    @property
    def site(self) -> SiteId:
        """Return the name of the site."""
        return self.ledger.site

    @property
    def sites(self) -> int:
        """Return the number of sites in the study."""
        return len(self.agreement.sites)

    @property
    def budget(self) -> Budget:
        """Return the label budget, as far as the total number of rows is known."""
        return Budget(
            config=self.agreement.config,
            sites=self.sites,
            rows=self.rows,
            is_shared=is_shared(self.made.methods["query"]),
            is_one_pass=self.schedule.is_one_pass,
            rows_of_all=self.ledger.instructions.rows_of_all(),
            plan=self.agreement.plan,
        )

    # -- checks before an instruction --------------------------------------------------------

    def check(
        self, run: str, request: Request, position: InstructionPosition, pool: int
    ) -> InstructionNotes:
        """Raise ValueError for a request that the agreement does not permit.

        Returns the facts to store when the instruction is done. ``pool`` is the number of rows in
        the unlabeled pool.
        """
        self._check_described(position)
        self._check_often(run, request, position)
        self._check_fits(request, position)
        self._check_masked(request, position)
        last = request.steps[-1]
        if last.kind != "fit" and last.function != KEYS:
            self._check_words(request, last)
        if position.key.step == "encode" and last.function != KEYS:
            self._check_encoding(last)
        if request.owner == "annotators":
            return self._check_people(run, request, last, position, pool)
        notes = InstructionNotes()
        for n in self._find_label_counts(request.owner, last):
            notes = self._check_asked(request.key, n, position, pool)
        if position.key.step == "best":
            self._check_whole(request.key, last.args)
        for step in request.steps:
            if step.kind == "fit" and (
                position.key.step == "head" or _brings_common_model(step)
            ):
                self._check_whole(request.key, step.args)
        return notes

    def check_receivers(self, request: Request, to: Mapping[SiteId, bytes]) -> None:
        """Raise ValueError for receivers outside the study, or if nothing is relayed."""
        is_relay = bool(request.steps) and request.steps[-1].kind == "relay"
        if to and not is_relay:
            raise Refusal(
                f"instruction {request.key} names receivers but relays nothing to them"
            )
        self._check_names(to, f"instruction {request.key} relays to")

    def check_senders(self, key: ExchangeKey, senders: Iterable[str]) -> None:
        """Raise ValueError for a peer message from outside the study."""
        self._check_names(senders, f"instruction {key} delivers a message of")

    def _check_names(self, names: Iterable[str], what: str) -> None:
        """Raise Refusal for the first name in alphabetical order that is not a site of the study."""
        unknown = min(set(names) - set(self.agreement.sites), default=None)
        if unknown is not None:
            raise Refusal(f"{what} {unknown!r:.80}, which is not a site of this study")

    def _check_described(self, position: InstructionPosition) -> None:
        """Raise Refusal if this site does not describe its data and would shrink a masked sum."""
        is_masked = self.agreement.config.privacy.secure_sum
        if position.key.step == "describe" and is_masked and not self.describes:
            raise Refusal(
                f"site {self.site} does not describe its data (describe.allowed is false in "
                "its site.toml), and a sum of fewer sites would show more of each"
            )

    # -- number of requests ------------------------------------------------------------------

    def _check_often(
        self, run: str, request: Request, position: InstructionPosition
    ) -> None:
        """Check that a client function is requested as often as its declaration permits."""
        last = request.steps[-1]
        function = last.function or last.kind
        functions = self._contract(request.owner).functions
        limits = {item.name: self._limit_calls(item) for item in functions}
        limit = limits.get(function, 1)
        if last.kind == "fit":  # further requests go to other sites
            limit = FITS
        elif last.function == KEYS and last.kind == "each":
            limit = sum(limits[item.name] for item in functions if item.operation == "sum")
        times = self.ledger.instructions.times(run, position.key.step_name, function)
        if times >= limit:
            raise Refusal(
                f"instruction {request.key} requests {function!r} from site {self.site} "
                f"in {position.key.step_name} again, but the agreed algorithm requests it at "
                f"most {limit} times"
            )

    def _limit_calls(self, item: Declaration) -> int:
        """Return how often one step may request a client function.

        A masked sum is repeated if a site does not reply.
        """
        limit = item.times or 4 * self.sites + 8
        if self.agreement.config.privacy.secure_sum and item.operation == "sum":
            limit *= self.sites
        return limit

    def _check_masked(self, request: Request, position: InstructionPosition) -> None:
        """Check that a masked sum belongs to its step and to sites of the study."""
        for step in request.steps:
            details = step.masked
            if details is None:
                continue
            exchange = details.exchange
            is_here = exchange == replace(position.key.first, turn=exchange.turn)
            is_later = exchange.turn > position.key.turn
            if not is_here or is_later or details.attempt >= self.sites:
                raise Refusal(
                    f"instruction {request.key} belongs to another exchange than the "
                    f"masked aggregation '{exchange}', attempt {details.attempt}"
                )
            self._check_names(details.keys, f"instruction {request.key} has a key of")

    # -- local training ---------------------------------------------------------------------

    def _check_fits(self, request: Request, position: InstructionPosition) -> None:
        """Check that models are placed and trained as the agreed algorithms do."""
        fits = [step for step in request.steps if step.kind == "fit"]
        for step in fits:
            known = self._models(request, position)
            if step.function not in known:
                raise Refusal(
                    f"instruction {request.key} would store {step.function!r:.80} at "
                    f"site {self.site}; this study may store "
                    f"{', '.join(known) or 'nothing'}"
                )
            if step.training_config is not None and not self._is_agreed(
                request.owner, step, position
            ):
                raise Refusal(
                    f"instruction {request.key} requests training of {step.function!r} "
                    "with a training configuration that differs from the agreed one "
                    f"({_describe(step.training_config)})"
                )
            if step.training_config is None and not self._is_stored(
                request.owner, step, position
            ):
                raise Refusal(
                    f"instruction {request.key} sends a model {step.function!r} without "
                    "training it, which the agreed algorithm does not do"
                )
            self._check_parts(request.key, step.args, step.training_config)

    def _check_parts(
        self,
        key: ExchangeKey,
        parts: Mapping[str, Value],
        config: TrainingConfig | None = None,
    ) -> None:
        """Raise Refusal for parts of another model than the agreed one."""
        start = config.start if config is not None else "given"
        state = declared_state(self.made.methods)
        why = state.find_wrong_part(parts, self.made.dims, start)
        if why is not None:
            raise Refusal(f"instruction {key} {why}")

    def _models(self, request: Request, position: InstructionPosition) -> tuple[str, ...]:
        """Return the names under which instructions store models at a site."""
        if position.key.step in ("round", "last"):
            models = self._contract("training").fit.models
            return tuple(dict.fromkeys([LOCAL, *models]))
        if position.key.step == "head":
            return tuple(self._contract("head").fit.models)
        if position.key.step == "query":
            own = tuple(self._contract("query").fit.models)
            if position.key.part:
                return own
            return ("global", "local", *own)
        return ()

    def _is_agreed(self, owner: str, step: Step, position: InstructionPosition) -> bool:
        training_config = step.training_config
        if training_config is None:
            return False
        method = self._method(owner)
        if owner == "query" and step.function in ("local", "global"):
            wanted = local_training_config(self.agreement.config, method)
            return (
                step.function == "local"
                and training_config == wanted
                and position.key.part == 0
            )
        return method.contract.fit.allows(method, step.function, training_config)

    def _is_stored(self, owner: str, step: Step, position: InstructionPosition) -> bool:
        """Return whether an instruction may send a model that is not trained."""
        if step.function == "global" and position.key.step == "query":
            return True
        method = self._method(owner)
        return method.contract.fit.allows(method, step.function, None)

    # -- arguments of client functions -------------------------------------------------------

    def _check_words(self, request: Request, step: Step) -> None:
        """Raise unless a client function accepts the arguments, with plausible numbers."""
        function = site_function(self._method(request.owner), step.function)
        with explain_errors(
            f"instruction {request.key} to {step.function}: ", of=TypeError, to=Refusal
        ):
            inspect.signature(function).bind(None, **step.args)
        declaration = declared(self._method(request.owner)).get(step.function)
        if declaration is None or declaration.takes is None:
            return
        known = SenderFacts({**self.made.dims, "rows": self.rows}, room=ROUNDED)
        args = dict(step.args)
        if request.owner == "annotators":  # the model is checked by itself
            sent = declared_state(self.made.methods).sent
            model = {name: args.pop(name) for name in sent if name in args}
            self._check_parts(request.key, model)
        why = find_wrong_argument(declaration.takes, args, known)
        if why is not None:
            raise Refusal(f"instruction {request.key} to {step.function}: {why}")

    def _find_label_counts(self, owner: str, step: Step) -> list[int]:
        """Return the numbers of labels in the arguments of a client function."""
        return list_label_counts(self._method(owner), step.function, step.kind, step.args)

    def _check_encoding(self, step: Step) -> None:
        """Raise unless the step has the data to encode rows."""
        encoding = self.made.methods.get("encoding")
        if encoding is not None:
            encoding.check(self.site, dict(step.args))

    # -- labels and scores ------------------------------------------------------------------

    def _check_people(
        self,
        run: str,
        request: Request,
        step: Step,
        position: InstructionPosition,
        pool: int,
    ) -> InstructionNotes:
        is_for_keys = step.function == KEYS
        if not is_for_keys and step.function != position.key.step:
            raise Refusal(
                f"instruction {request.key} requests {step.function!r}, but its key is "
                f"of {position.key.step}"
            )
        if position.key.step == "ask":
            for n in self._find_label_counts(request.owner, step):
                return self._check_asked(request.key, n, position, pool)
        if position.key.step == "score" and not is_for_keys:
            return self._check_score(run, request.key, step.args, position)
        if position.key.step == "finish":
            self._check_whole(request.key, step.args)
        return InstructionNotes()

    def _check_asked(
        self, key: ExchangeKey, asked: int, position: InstructionPosition, pool: int
    ) -> InstructionNotes:
        """Check that the number of requested labels is at most the agreed one."""
        budget = self.budget
        limit = budget.of(position)
        if limit is not None and asked > limit:
            raise Refusal(
                f"instruction {key} requests {asked} labels from site {self.site}, "
                f"but the agreement allows {limit} in {position.step}: no labeling task "
                "was created"
            )
        if self.agreement.config.evaluation_fraction and position.key.step in (
            "query",
            "draw",
        ):
            # a part of the cycle's budget, which does not imply the total number of rows
            return InstructionNotes()
        is_of_all = budget.is_shared and position.cycle >= 0
        if limit is None and (asked < pool or is_of_all):
            # a number capped by the site's rows does not imply the total number of rows
            return InstructionNotes(rows_of_all=budget.infer_rows_of_all(position, asked))
        return InstructionNotes()

    def _check_score(
        self,
        run: str,
        key: ExchangeKey,
        args: Mapping[str, Value],
        position: InstructionPosition,
    ) -> InstructionNotes:
        parts = self._check_whole(key, args)
        if not parts:
            raise Refusal(f"instruction {key} has no model to score")
        scored = digest_of(parts)
        instructions = self.ledger.instructions
        limit = self.most_scores
        if (
            not instructions.is_scored(run, position.step, scored)
            and instructions.scores() >= limit
        ):
            raise Refusal(
                f"site {self.site} has scored {instructions.scores()} models, its limit "
                f"over all runs is {limit}: raise scores.limit in its site.toml, or "
                "leave the study"
            )
        return InstructionNotes(scored=scored)

    @property
    def most_scores(self) -> int:
        """Return the largest number of scored models over all runs.

        This is the site's own limit, or twice the number of one run, so that a run can be restarted
        once.
        """
        if self.scores is not None:
            return self.scores
        return 2 * self.schedule.scores

    # -- models -----------------------------------------------------------------------------

    def _check_whole(self, key: ExchangeKey, args: Mapping[str, Value]) -> State:
        """Return the parts of the model in an instruction, or nothing without a model.

        Raises Refusal for a missing part.
        """
        parts: State = {}
        for name in PARTS:
            part = args.get(name)
            if isinstance(part, Tensor):
                parts[name] = part
        missing = [name for name in PARTS if name not in parts]
        if parts and missing:
            raise Refusal(
                f"instruction {key} sends site {self.site} a model without "
                f"{missing[0]!r}, but a model has {' and '.join(PARTS)}; the "
                "coordinator's version of Fallow, or its training algorithm, "
                "differs from the agreed one"
            )
        return parts

    def _contract(self, owner: str) -> Contract:
        return self._method(owner).contract

    def _method(self, owner: str) -> Method:
        return methods_by_owner(self.made.methods)[owner]


def _brings_common_model(step: Step) -> bool:
    """Return whether a fit receives the global model, to store or to continue training."""
    if step.function == "global":
        return True
    return (
        step.function == "local"
        and step.training_config is not None
        and step.training_config.start == "given"
    )


def _describe(training_config: TrainingConfig) -> str:
    return (
        f"{training_config.epochs} epochs, batch size {training_config.batch_size}, learning rate "
        f"{training_config.optimizer.lr}, start {training_config.start!r}"
    )
