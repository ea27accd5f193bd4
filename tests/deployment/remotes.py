"""Sites of `tests.simulations` behind signed messages, and a transport to them. They have all
that `RemoteChannel` needs and no ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fallow.core.ask import Ask
from fallow.core.events import Event
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import methods_by_owner
from fallow.core.types import Values
from fallow.core.values import SenderFacts, resolve_dims
from fallow.deployment.coordinator.weights import SiteWeights
from fallow.engine import Loop, row_loss
from fallow.experiment.event_log import EventLog
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.sites import LocalSite
from fallow.sites.in_process import perform
from fallow.transport.checks import (
    ResponseCheck,
    check_instruction,
    declared_by_owner,
)
from fallow.transport.envelope import Instruction, Reply, open_instruction, sign_message
from fallow.transport.gathering import EPSILON, Keys, SealKey
from fallow.transport.peer_messages import read_delivery, read_request, seal_peer_messages
from fallow.transport.remote import RemoteChannel
from fallow.transport.sum_keys import (
    SIGNED,
    check_proofs,
    check_seal_proofs,
    find_shown,
    sign_seal_key,
    sign_sum_key,
)
from tests.deployment.loopback import Loopback
from tests.keys import step_of
from tests.simulations import Simulation, Tables, simulation, tables

STUDY, RUN = "study", "run"
Change = Callable[[Instruction, Values], Values]


@dataclass(frozen=True)
class Timeouts:
    timeout: float = 10.0
    quorum: int | None = None
    patience: float = 1000.0


@dataclass
class Signing:
    """Simulate a site that answers signed instructions and never dies. change: modifies a
    reply before it is sent, for a dishonest site."""

    site: LocalSite
    public: bytes  # the coordinator's key
    secret: bytes = field(default_factory=new_signing_key)
    sealing: bytes = field(default_factory=new_secret)
    change: Change | None = None
    sent: dict[str, Values] = field(default_factory=dict)

    @property
    def seal_key(self) -> SealKey:
        public = public_half(self.sealing)
        return SealKey(public, sign_seal_key(self.secret, STUDY, self.site.id, public))

    def handle(self, blob: bytes) -> bytes:
        key: ExchangeKey | None = None
        life = ""
        try:
            instruction = open_instruction(self.public, blob)
            key = instruction.key
            life = instruction.life
            if str(key) not in self.sent:
                self.sent[str(key)] = self.answer(instruction)
            answer = dict(self.sent[str(key)])
        except (ValueError, RuntimeError) as error:
            refused = Reply(RUN, self.site.id, key, refused=str(error), life=life)
            return sign_message(self.secret, refused)
        answer = self.change(instruction, answer) if self.change else answer
        return sign_message(self.secret, Reply(instruction.run, self.site.id, key, answer))

    def answer(self, instruction: Instruction) -> Values:
        site = self.site
        parts = self.site.parts
        if instruction.purpose == "progress":
            return {"asked": 3, "open": 1}
        if instruction.purpose == "deliver":
            known = SenderFacts(resolve_dims(parts.layout, parts.classes, sites=1))
            brought = read_delivery(
                instruction, self.sealing, parts.methods["query"], known
            )
            site.receive(brought.function, brought.messages)
            return {"refused": "; ".join(brought.refused.values())}
        request, to = read_request(instruction)
        check_instruction(request, parts)
        for step in request.steps:
            if step.masked is not None and step.masked.keys:
                check_proofs(instruction, step.masked)
        check_seal_proofs(instruction, to, public_half(self.sealing))
        before = sum(site.spent.values())
        engine = Loop(parts.model, parts.layout, row_loss("classification"))
        result = perform({site.id: site}, engine, {site.id: request})[site.id]
        if request.steps[-1].kind == "relay":
            result = seal_peer_messages(instruction, result, to)
        shown = find_shown(request)
        if shown is not None:
            signed = sign_sum_key(self.secret, instruction, site.id, shown, result["key"])
            result = {**result, SIGNED: signed}
        return {**result, EPSILON: sum(site.spent.values()) - before}


@dataclass
class Federation:
    """Provide a federated dataset whose transport is a `RemoteChannel`."""

    simulation: Simulation
    signing: dict[str, Signing]
    remote: RemoteChannel
    weights: SiteWeights
    transport: Loopback
    event_log: EventLog
    events: list[Event]

    def ask(self, key: str = "0/query", owner: str = "query", cycle: int = 0) -> Ask:
        parts = next(iter(self.simulation.members.values())).parts
        masking = SecureSum(parts.privacy.bound) if parts.privacy.secure_sum else None
        disclosures = methods_by_owner(parts.methods)[owner].contract.disclosures
        return Ask(
            self.remote,
            self.event_log,
            self.simulation.shown,
            step_of(key),
            owner,
            cycle,
            reveals=disclosures,
            masking=masking,
        )

    @property
    def refusals(self) -> dict[str, str]:
        """Return the last reason why a reply of a site was rejected."""
        return {e["site"]: e["reason"] for e in self.events if e["event"] == "refused"}


def federation(
    strategy: Any,
    sites: Tables | None = None,
    waits: Timeouts | None = None,
    privacy: Privacy | None = None,
    transport: Mapping[str, Any] | None = None,
) -> Federation:
    """Create sites on a loopback transport; ``transport``: fields of the transport."""
    made = simulation(sites or tables(), strategy)
    for (
        site
    ) in made.members.values():  # noise as at a real site, random draws as in a simulation
        site.parts = replace(
            site.parts,
            privacy=privacy or Privacy(),
            noise="os",
            secret=site.parts.seed,
        )
    secret = new_signing_key()
    signing = {s: Signing(site, verify_key(secret)) for s, site in made.members.items()}
    loopback = Loopback(
        {s: site.handle for s, site in signing.items()}, **(transport or {})
    )
    keys = Keys(
        secret,
        {s: verify_key(site.secret) for s, site in signing.items()},
        {s: site.seal_key for s, site in signing.items()},
    )
    output: list[Event] = []
    event_log = EventLog()
    parts = next(iter(made.members.values())).parts
    response_check = ResponseCheck(
        declared=declared_by_owner(parts.methods),
        dims=resolve_dims(parts.layout, parts.classes, len(made.members)),
        is_noisy=parts.privacy.epsilon is not None,
    )
    weights = SiteWeights(response_check)
    remote = RemoteChannel(
        loopback,
        event_log,
        keys,
        STUDY,
        RUN,
        waits or Timeouts(),
        output.append,
        response_check,
        weights,
        clock=loopback.clock,
    )
    return Federation(made, signing, remote, weights, loopback, event_log, output)
