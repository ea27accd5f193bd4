"""Running site: signed instructions in, signed replies out, each performed once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import cast, final

import torch
from torch import Tensor

from fallow.core.client import declared
from fallow.core.events import EventHandler, ignore_event
from fallow.core.messages import KEYS, Request
from fallow.core.methods import methods_by_owner, site_function
from fallow.core.refusal import Refusal
from fallow.core.streams import seed_of
from fallow.core.types import SiteId, Values
from fallow.core.values import SenderFacts
from fallow.core.version import __version__
from fallow.deployment.agreement import Agreement
from fallow.deployment.annotators import PICKED, Annotators, LabelingView, begin_cycle
from fallow.deployment.answer_plan import SINGLE
from fallow.deployment.building import build_study
from fallow.deployment.descriptions import RUNS
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.draft import Draft
from fallow.deployment.ledger.label_requests import TaskLimits
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.keys import Peers
from fallow.deployment.site.limits import InstructionNotes, SiteLimits
from fallow.deployment.site.refusals import ErrorLog, word_for_outside
from fallow.deployment.site.rollback import Rollback
from fallow.deployment.site.rows import SiteRows
from fallow.deployment.site.schedule import InstructionPosition, check_run
from fallow.deployment.site.step_log import note_stored, repeat_stored
from fallow.experiment.encoding import encoding_with
from fallow.experiment.steps import find_fresh, hold_back, is_stratified
from fallow.privacy.settings import SMALLEST
from fallow.sites.in_process import perform
from fallow.sites.site import LocalSite, RunComponents
from fallow.sites.store import Label
from fallow.storage.errors import StorageError
from fallow.storage.features import FeatureStore
from fallow.transport.checks import (
    bound_message,
    check_instruction,
    count_products,
    sizes_of_models,
)
from fallow.transport.envelope import (
    Instruction,
    Reply,
    check_release,
    open_instruction,
    sign_message,
)
from fallow.transport.gathering import EPSILON
from fallow.transport.peer_messages import (
    Delivery,
    bytes_to_tensor,
    limit_claims,
    read_delivery,
    read_request,
    seal_peer_messages,
)
from fallow.transport.sum_keys import (
    SIGNED,
    check_proofs,
    check_seal_proofs,
    find_shown,
    sign_sum_key,
)

FEATURES = "features"
"""Folder of encoded rows in a site's folder."""


class OlderLedger(Refusal):
    """Error: the coordinator has counted an exchange that the site's ledger does not have."""


@final
class Host:
    """One site of a study.

    `handle` never raises: an error is returned as a signed reply with a safe message
    (`fallow.deployment.site.refusals`), and the full error is logged in ``errors.log``. An
    instruction and its reply are one ledger transaction. A repeated instruction has the same reply,
    also after a crash, and a failed instruction changes nothing. Changes after the last exchange
    that the coordinator counted are undone before the next instruction, except labels, labeling
    tasks, releases and secrets.

    ``clock`` returns the time of day, by which runs from the future are detected. ``notify`` receives
    the progress of encoding.
    """

    def __init__(
        self,
        folder: SiteFolder,
        ledger: Ledger,
        clock: Callable[[], float] = time.time,
        notify: EventHandler = ignore_event,
    ) -> None:
        features = FeatureStore(
            folder.path / FEATURES, always=True, grows=True, notify=notify
        )
        agreement = folder.agreement
        folder.check_units()
        self._folder = folder
        self._ledger = ledger
        self._agreement = agreement
        made = build_study(agreement)
        self._tests = rows_to_score(agreement, folder.tests)
        methods = made.methods.copy()
        if "describe" in methods:
            methods["describe"] = methods["describe"].at_site(
                folder.settings.describes, self._tests[1]
            )
        self._made = replace(made, methods=methods)
        self._parts = RunComponents(
            model=self._made.model,
            layout=self._made.layout,
            methods=self._made.methods,
            classes=self._made.classes,
            n_labels=len(agreement.schema.labels),
            seed=agreement.seed,
            fresh=self._made.fresh,
            privacy=agreement.config.protected,
            noise="os",
            encode=encoding_with(features, self._made.encoder),
        )
        self._x = folder.rows.x.to(self._made.dtype)
        self._draft = Draft(ledger.store)
        self._annotators = cast(Annotators, self._made.methods["annotators"])
        self._clock = clock
        self._limits = SiteLimits(
            agreement=agreement,
            made=self._made,
            ledger=ledger,
            rows=len(folder.rows.ids),
            width=max(self._x[0].numel(), self._made.width),
            scores=folder.settings.scores,
            describes=folder.settings.describes,
        )
        self._largest = bound_message(
            sizes_of_models(self._made.layout),
            len(agreement.sites),
            self._limits.width,
            len(folder.rows.ids),
            count_products(self._made.methods, self._made.width),
        )
        self._back = Rollback(
            schedule=self._limits.schedule,
            instructions=ledger.instructions,
            site=folder.name,
            is_masked=agreement.config.privacy.secure_sum,
        )
        self._peers = Peers(folder.path, folder.name)
        self._turn = threading.Lock()
        self._site: LocalSite | None = None
        self._acting_in: str | None = None  # run of the last instruction
        ledger.instructions.check_rows(len(folder.rows.ids))

    def handle(self, blob: bytes) -> bytes:
        """Return the reply to a message, both as bytes."""
        name = self._folder.name
        instruction: Instruction | None = None
        with self._turn:
            try:
                self._check_size(blob)
                instruction = open_instruction(self._agreement.coordinator, blob)
                values = self._reply(instruction)
                reply = Reply(
                    instruction.run,
                    name,
                    instruction.key,
                    body=values,
                    life=instruction.life,
                )
                return sign_message(self._folder.keys.sign, reply)
            except (Exception, SystemExit) as error:
                log = ErrorLog(self._folder.path)
                why = word_for_outside(name, self._function(instruction), error, log)
        if instruction is None:  # an unreadable message names no exchange
            refusal = Reply("", name, None, refused=why, life="")
        else:
            refusal = Reply(
                instruction.run, name, instruction.key, refused=why, life=instruction.life
            )
        return sign_message(self._folder.keys.sign, refusal)

    def _check_size(self, blob: bytes) -> None:
        """Raise Refusal for a message that is too large to be parsed."""
        if len(blob) > self._largest:
            raise Refusal(
                f"a message of {len(blob)} bytes to site {self._folder.name} is not "
                "parsed: the model, examples and sites of the study imply at most "
                f"{self._largest}"
            )

    def _function(self, instruction: Instruction | None) -> str:
        """Describe an instruction by its own and the agreement's terms only."""
        if instruction is None:
            return "an unread message"
        if instruction.purpose == "deliver":
            return "the delivery of peer messages"
        if instruction.purpose == "progress":
            return "a progress request"
        try:
            request, _ = read_request(instruction)
        except Exception:  # report an error once
            return "a request"
        if not request.steps:
            return "a request without steps"
        step = request.steps[-1]
        owner = request.owner
        method = self._made.methods.get(owner)
        if method is not None:
            owner = type(method).__name__
        if step.kind == "fit":
            return f"training of {owner}"
        return f"{owner}.{step.function}"

    # -- accepting instructions --------------------------------------------------------------

    def _reply(self, instruction: Instruction) -> Values:
        """Perform an instruction and return the reply.

        If the coordinator has counted an exchange that this ledger does not have, the ledger was
        restored. Unless that is known already, the releases since then are unknown.
        """
        self._check_addressed(instruction)
        self._ledger.check_in_place()
        try:
            return self._handle_in_order(instruction)
        except OlderLedger as error:
            sentence = str(error)
            store = self._ledger.store
            if not store.is_known_older():
                output = store.exhaust_budget()
                if output:  # nothing without a privacy budget
                    sentence += f"; {output}"
            raise Refusal(sentence) from error

    def _handle_in_order(self, instruction: Instruction) -> Values:
        if instruction.purpose == "progress":
            self._find_counted(instruction)
            return self._annotators.progress(self._labeling_view(instruction, cycle=0))
        position = self._limits.schedule.find_position(instruction.key)
        request: Request | None = None
        to: dict[SiteId, bytes] = {}
        if instruction.purpose == "request":
            request, to = read_request(instruction)
            self._limits.schedule.check(request, position)
        with self._ledger.transaction():
            self._enter_run(instruction.run)
            stored = self._ledger.instructions.recall(instruction)
            if stored is not None:
                return stored
            self._take_turn(instruction, position)
        try:
            if request is None:
                return self._deliver_peer_messages(instruction, position)
            return self._perform(instruction, request, position, to)
        except BaseException:
            self._site = None  # discard the changes of the instruction
            self._draft.abandon(self._folder.name)
            raise

    def _check_addressed(self, instruction: Instruction) -> None:
        if instruction.site != self._folder.name:
            raise Refusal(
                f"an instruction to site {instruction.site} was sent to site {self._folder.name}"
            )
        check_release(
            instruction.version, "the coordinator", __version__, f"site {instruction.site}"
        )
        if instruction.study != self._agreement.digest:
            raise Refusal(
                f"site {instruction.site} has agreed to study {self._agreement.digest}, "
                f"not to {instruction.study}: compare its study.toml with the coordinator's"
            )

    def _enter_run(self, run: str) -> None:
        """Continue the newest run, or start a new one with the earlier labels."""
        instructions = self._ledger.instructions
        store = self._ledger.store
        newest = instructions.newest_run()
        if instructions.is_left(run):
            raise Refusal(
                f"users at site {self._folder.name} have left run {run}: start "
                "another one, in a new folder"
            )
        if run != newest:
            if instructions.is_known(run):
                raise Refusal(
                    f"site {self._folder.name} has left run {run} for {newest}: this "
                    "is a replay, or two coordinators run one study"
                )
            check_run(run, self._clock())
            latest = instructions.latest_run()
            if latest is not None and run < latest:  # names sort by start time
                raise Refusal(
                    f"site {self._folder.name} is in run {latest}, and run {run} "
                    "started before it: this is a replay, or the coordinator's "
                    "clock was set back; correct it and start in a new folder; if "
                    f"run {latest} was started with a wrong clock, users at the site "
                    "can leave it with: fallow site unlock"
                )
            limit = RUNS
            if self._folder.settings.runs is not None:
                limit = self._folder.settings.runs
            if instructions.runs() >= limit:
                raise Refusal(
                    f"site {self._folder.name} has taken part in {instructions.runs()} "
                    f"runs of this study, and its limit is {limit}: raise runs.limit "
                    "in its site.toml, or leave the study"
                )
            store.run = newest or run
            store.trust()
            instructions.begin(run)
            store.clear()
            store.carry_labels_over()
            self._enter_own_labels()
            self._site = None  # possibly created by a progress request
        if run != self._acting_in:
            # also if the new run was not started, or after labeling requests
            self._site = None
        store.run = run
        self._acting_in = run

    def _enter_own_labels(self) -> None:
        """Add the labels in the site's file, which have no cost."""
        name = self._folder.name
        config = self._agreement.config
        taken = self._ledger.requests.find_taken_rows("", -1)
        labels: list[Label] = []
        for row, value in enumerate(self._folder.rows.labels):
            if value is not None and row not in taken:
                labels.append(Label(row, value, cycle=-1))
        seed = seed_of(self._agreement.seed, "validation", "brought", name)
        by_class = is_stratified(config, self._made.classes)
        groups = self._folder.rows.group_numbers
        earlier = self._ledger.store.load_labels(name)
        labels = hold_back(labels, config.validation, by_class, seed, groups, earlier)
        self._ledger.store.write(name, labels)

    def _take_turn(self, instruction: Instruction, position: InstructionPosition) -> None:
        """Undo changes that came too late, and check the position of an instruction.

        Raises ValueError for an instruction out of order. A run proceeds from step to step, and
        rolls back if an exchange is repeated. The delivery of a relay continues its first part,
        which counts only when both are done.
        """
        instructions = self._ledger.instructions
        store = self._ledger.store
        site = self._folder.name
        number, newest = instructions.find_position(instruction.run)
        if instruction.number < number:
            raise Refusal(
                f"site {site} is at exchange {number} and instruction {instruction.key} is "
                f"number {instruction.number}: this is a replay, or the coordinator's "
                "folder was restored from a backup"
            )
        if newest is not None and instruction.key == replace(newest, is_delivery=True):
            return
        self._back.follow(instruction, position, newest)
        store.settle(self._find_counted(instruction))
        instructions.drop()
        if store.restore():
            self._site = None

    def _find_counted(self, instruction: Instruction) -> int:
        """Return the number of the last counted exchange.

        Raises OlderLedger if it is unknown.
        """
        if instruction.counted is None:
            return 0
        exchange = self._ledger.instructions.find_exchange(
            instruction.run, instruction.counted
        )
        if exchange is None:
            raise OlderLedger(
                f"the ledger of site {self._folder.name} does not have exchange "
                f"{instruction.counted}, which the coordinator has counted: it is older, "
                f"perhaps from a backup; restore the newest one, or {self._way_out}"
            )
        return exchange

    @property
    def _way_out(self) -> str:
        """Return how a study continues with a site whose ledger is older."""
        again = "'fallow coordinate start FOLDER --new-run'"
        left = len(self._agreement.sites) - 1
        if self._agreement.config.privacy.secure_sum and left < SMALLEST:
            return (
                f"begin a new run, because secure aggregation needs {SMALLEST} sites: {again}; "
                "no label in a ledger is lost"
            )
        return (
            f"proceed without this site until a new run ({again}), which keeps its labels"
        )

    # -- performing instructions -------------------------------------------------------------

    def _deliver_peer_messages(
        self, instruction: Instruction, position: InstructionPosition
    ) -> Values:
        brought = self._receive(instruction, position)
        reply: Values = {"refused": "; ".join(brought.refused.values())}
        notes = InstructionNotes()
        return self._finish(
            instruction, position.owner, brought.function, reply, notes=notes
        )

    def _perform(
        self,
        instruction: Instruction,
        request: Request,
        position: InstructionPosition,
        to: Mapping[SiteId, bytes],
    ) -> Values:
        """Perform a request, and write the reply and all changes in one transaction at the end."""
        check_instruction(request, self._parts)
        pool = len(self._local_site().pool)
        self._limits.check_receivers(request, to)
        notes = self._limits.check(instruction.run, request, position, pool)
        self._check_keys(instruction, request, to)
        with self._ledger.transaction():
            self._ledger.instructions.attempt(instruction)
            if notes.scored is not None:
                self._ledger.instructions.note_score(
                    instruction.run, position.step, notes.scored
                )
        function = request.steps[-1].function or request.steps[-1].kind
        is_labeling = request.owner == "annotators"
        is_writing = is_labeling and function in self._annotators.writes
        is_closing = is_writing and function == "close"
        transaction: AbstractContextManager[None] = nullcontext()
        # changes of labeling tasks are written in the transaction of the reply
        if is_writing:
            transaction = self._ledger.transaction()
        with transaction:
            if is_labeling:
                reply = self._run_labeling_function(instruction, request, position)
            else:
                reply = self._run_client_function(request, position)
            if request.steps[-1].kind == "relay":
                reply = seal_peer_messages(instruction, reply, to)
            reply = self._sign_key(instruction, request, reply)
            reply = self._finish(
                instruction,
                request.owner,
                function,
                reply,
                notes=notes,
                is_closing=is_closing,
            )
        if is_closing:
            # the ledger itself is safe, and the next end of labeling repeats the backup
            with suppress(StorageError, OSError):
                self._ledger.backup()
        return reply

    def _check_keys(
        self, instruction: Instruction, request: Request, to: Mapping[SiteId, bytes]
    ) -> None:
        """Raise Refusal for public keys that do not belong to the other sites.

        These are the keys of a sum, and those that encrypt peer messages.
        """
        if to:
            own = self._folder.keys.seal_public
            self._peers.hold(check_seal_proofs(instruction, to, own))
        for step in request.steps:
            if step.masked is not None and step.masked.keys:
                self._peers.hold(check_proofs(instruction, step.masked))

    def _sign_key(
        self, instruction: Instruction, request: Request, reply: Values
    ) -> Values:
        """Sign the public key for a sum in a reply. Other replies are returned unchanged."""
        shown = find_shown(request)
        if shown is None:
            return reply
        name = self._folder.name
        signature = sign_sum_key(
            self._folder.keys.sign, instruction, name, shown, reply["key"]
        )
        return {**reply, SIGNED: signature}

    def _finish(
        self,
        instruction: Instruction,
        owner: str,
        function: str,
        reply: Values,
        *,
        notes: InstructionNotes,
        is_closing: bool = False,
    ) -> Values:
        """Write the changes and the reply, with the privacy cost.

        An ended cycle stays ended, whether or not the exchange counts.
        """
        instructions = self._ledger.instructions
        store = self._ledger.store
        epsilon = self._draft.epsilon
        if epsilon:
            reply = {**reply, EPSILON: epsilon}
        with self._ledger.transaction():
            store.exchange = instructions.finish(instruction, owner, function, reply)
            if notes.rows_of_all is not None:
                instructions.note_rows_of_all(notes.rows_of_all)
            self._draft.flush(self._folder.name)
            if is_closing:
                store.settle(store.exchange)
                store.trust()
        return reply

    def _receive(self, instruction: Instruction, position: InstructionPosition) -> Delivery:
        """Decrypt, check and store relayed messages."""
        method = methods_by_owner(self._made.methods)[position.owner]
        known = SenderFacts(self._made.dims)
        brought = read_delivery(instruction, self._folder.keys.seal, method, known)
        self._limits.check_senders(instruction.key, brought.messages)
        site = self._local_site()
        ratio = self._agreement.bounds.largest_ratio
        brought = limit_claims(brought, len(site.labeled), ratio)
        begin_cycle(site, position.cycle, self._agreement.config)
        site.receive(brought.function, brought.messages)
        return brought

    def _run_client_function(
        self, request: Request, position: InstructionPosition
    ) -> Values:
        site = self._local_site()
        begin_cycle(site, max(position.cycle, 0), self._agreement.config)
        before = site.memory.get("selected")

        def run(performed: Request) -> Values:
            replies = perform({site.id: site}, self._made.executor, {site.id: performed})
            return replies[site.id]

        with self._hold_back_new_labels(site, request):
            repeat_stored(site, request, run)
            reply = run(request)
        note_stored(site, request)
        if site.memory.get("selected") is not before:
            site.remember(PICKED, {"step": bytes_to_tensor(position.step.encode())})
        return reply

    def _run_labeling_function(
        self, instruction: Instruction, request: Request, position: InstructionPosition
    ) -> Values:
        """Run client functions of `Annotators`, masked if secure aggregation is enabled."""
        step = request.steps[-1]
        site = self._local_site()
        if step.masked is not None and step.function == KEYS:
            return site.guard.public_key(step.masked)
        if step.function == "score":
            site.guard.check(step)
        function = site_function(self._annotators, step.function)
        view = self._labeling_view(instruction, position.cycle)
        reply = cast(Values, function(view, **step.args))
        if step.kind == "keep":
            return {"count": reply["count"]}
        if step.kind == "sum":
            declaration = declared(self._annotators)[step.function]
            return site.guard.protect(step, request, reply, declaration.wide_fields)
        return reply

    # -- site state --------------------------------------------------------------------------

    def _local_site(self) -> LocalSite:
        """Return the site from the ledger, without rows that have left, and with corrections."""
        requests = self._ledger.requests
        is_corrected = requests.apply_corrections()
        if self._site is None:
            self._site = LocalSite(
                self._folder.name,
                self._x,
                self._own_parts(),
                self._draft,
                groups=self._folder.rows.group_numbers,
                predictions=self._folder.rows.predictions,
                cases=self._folder.rows.cases,
            )
        elif is_corrected:
            self._site.reread(self._ledger.store.load_labels(self._folder.name))
        self._site.leave(requests.find_excluded_rows())
        return self._site

    def _own_parts(self) -> RunComponents:
        """Return the algorithms with secret random streams of this run.

        The streams derive from the site's own key and are the same after a restart.
        """
        run = self._ledger.store.run.encode()
        draws = hashlib.sha256(b"draws|" + run + self._folder.keys.seal)
        secret = int.from_bytes(draws.digest())
        return replace(self._parts, secret=secret, answers=self._draft)

    def _labeling_view(self, instruction: Instruction, cycle: int) -> LabelingView:
        x, y = self._tests
        return LabelingView(
            site=self._local_site(),
            ledger=self._ledger,
            agreement=self._agreement,
            x=x,
            y=y,
            run=instruction.run,
            key=instruction.key,
            cycle=cycle,
            seal=self._folder.keys.seal_public,
            path=self._folder.path,
            bounds=self._task_limits(),
            marks=self._folder.rows.marks,
        )

    def _task_limits(self) -> TaskLimits:
        """Return the limits of the study on annotations over all runs.

        The site's own limit replaces the number that one run requests. The limit on
        labeling tasks is twice the smaller of both, because some tasks expire.
        """
        agreed = replace(self._limits.budget, plan=SINGLE).total  # annotations
        own = self._folder.settings.limit
        labels = own
        fewest = own  # the smaller of both, if both are known
        if own is None:
            labels = agreed
            fewest = agreed
        elif agreed is not None:
            fewest = min(agreed, own)
        shown = None
        if self._folder.settings.shown is None and fewest is not None:
            shown = 2 * fewest
        return TaskLimits(labels=labels, shown=shown)

    @contextmanager
    def _hold_back_new_labels(self, site: LocalSite, request: Request) -> Iterator[None]:
        """Hold out new labels for validation in the first round after a query (``fresh_first``)."""
        is_first_round = request.key.step == "round" and request.key.round == 0
        fresh: list[int] = []
        if self._agreement.config.fresh_first and request.cycle and is_first_round:
            labels = self._ledger.store.load_labels(site.id)
            fresh = find_fresh(labels, request.cycle, site.groups)
        with site.hold_back(fresh):
            yield


def rows_to_score(agreement: Agreement, tests: SiteRows | None) -> tuple[Tensor, Tensor]:
    """Return the test rows in model form (m, ...) and their labels (m,), possibly empty."""
    if tests is None:
        return agreement.example.x[:0], torch.zeros(0)
    return tests.x, torch.tensor(tests.labels, dtype=torch.float32)
