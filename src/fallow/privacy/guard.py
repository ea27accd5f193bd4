"""Client side of privacy: protection of a reply, in a fixed order.

noise -> post-processing -> bound check -> fixed point -> mask.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor

from fallow.core.messages import Masked, Request, Step, digest_exchange
from fallow.core.refusal import Refusal
from fallow.core.streams import stream
from fallow.core.types import SiteId, Values
from fallow.core.view import Release
from fallow.privacy.gaussian import (
    add_rho,
    cost_of_next,
    draw_gaussian_from_os,
    draw_gaussian_seeded,
    rho_of,
    scale_of,
)
from fallow.privacy.ledger import (
    Released,
    ReleaseLedger,
    SumKey,
    check_budget,
    check_delta,
)
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.noise import draw_from_os, draw_seeded
from fallow.privacy.secure_sum import mask_reply
from fallow.privacy.settings import SMALLEST, Privacy

Noise = Literal["seeded", "os"]
COARSEST = 2.0**40
"""Largest bound of the server side, if the study declares no larger one.  Contributions of ten sites
then have 19 fractional bits."""


@final
@dataclass(frozen=True)
class ReleaseGuard:
    """Protection of the replies of one site.

    ``noise``: from the operating system, or in a simulation from the random stream of ``seed``,
    which can be repeated.  ``examples``: number of examples of the site.
    """

    site: SiteId
    privacy: Privacy
    ledger: ReleaseLedger
    seed: int
    noise: Noise = "os"
    examples: int = 0

    def check(self, step: Step) -> None:
        """Raise ValueError for a request that would send a contribution without its mask.

        Relayed replies go to other sites, and the server side learns their size: transports pass
        them on or encrypt them, with or without a receiver.
        """
        is_masked = step.kind == "sum" and step.masked is not None
        is_shown = step.kind not in ("keep", "relay") and not is_masked
        if self.privacy.secure_sum and is_shown:
            raise Refusal(
                f"site {self.site} does not answer {step.function!r} by {step.kind}: "
                "with secure aggregation (privacy.secure_sum), it sends only masked "
                "contributions"
            )

    def public_key(self, cohort: Masked) -> Values:
        """Return the public key of one attempt at one aggregate, always the same one."""
        name = _name_key(cohort)
        secrets = self.ledger.load_secret(self.site)
        if secrets is None or secrets["name"] != name:
            secret = new_secret()
            shown = _to_tensor(public_half(secret))
            secrets = {"name": name, "public": shown, "secret": _to_tensor(secret)}
            self.ledger.hide(self.site, secrets)
        return {"key": secrets["public"]}

    def protect(
        self,
        step: Step,
        request: Request,
        result: Values | Release,
        wide_fields: Collection[str] = (),
    ) -> Values:
        """Return the protected reply from the result of a client function.

        ``wide_fields``: fields of the reply that are masked in wide fixed point.
        """
        if isinstance(result, Release):
            reply = self._release(step, request, result)
        else:
            self._check_noisy(step, request)
            reply = result
        if step.masked is None:
            return reply
        return self._mask(step, step.masked, reply, wide_fields)

    # -- noise ------------------------------------------------------------------------------

    def _check_noisy(self, step: Step, request: Request) -> None:
        if self.privacy.epsilon is not None and request.owner == "query":
            raise Refusal(
                f"site {self.site} does not answer {step.function!r} under local privacy "
                "(privacy.epsilon): the client function returns plain numbers "
                "without noise; a function that counts examples must return Release"
            )

    def _release(self, step: Step, request: Request, release: Release) -> Values:
        """Return noisy counts, after ``post``.

        The same request always gets the same reply: repeated requests would average out the noise.
        """
        epsilon = self.privacy.epsilon
        if epsilon is None:
            if release.delta:
                raise Refusal(
                    f"site {self.site} does not answer {step.function!r} without noise: "
                    "set privacy.epsilon, the budget of one release"
                )
            return release.post(release.counts)
        key = str(step.masked.exchange if step.masked else request.key)
        question = replace(step, kind="sum", masked=None)
        digest = digest_exchange([(question, None)], [self.site])
        releases = self.ledger.load_releases(self.site)
        if key in releases:
            if releases[key].digest != digest:
                raise Refusal(
                    f"site {self.site} has replied to {key} before, for another "
                    "request; noise is drawn only once for each key"
                )
            return releases[key].reply
        total = self.privacy.over(1).total  # one release if the number is unknown
        cost = epsilon
        rho = 0.0
        delta = 0.0
        if release.delta:
            check_delta(self.site, release.delta, self.examples)
            if not any(line.rho for line in releases.values()):
                delta = release.delta  # for all such releases of the run together
            rho = rho_of(epsilon, release.delta)
            before = add_rho(line.rho for line in releases.values())
            cost = cost_of_next(before, epsilon, release.delta)
        check_budget(self.site, releases, cost, total)
        post = release.post_noisy or release.post
        reply = post(self._add_noise(key, release, epsilon))
        self.ledger.spend(self.site, key, Released(cost, digest, reply, rho, delta))
        return reply

    def _add_noise(self, key: str, release: Release, epsilon: float) -> Tensor:
        if release.delta:
            return self._add_gaussian(key, release, rho_of(epsilon, release.delta))
        if self.noise == "os":
            return draw_from_os(
                release.counts,
                sensitivity=release.sensitivity,
                epsilon=epsilon,
                mechanism=self.privacy.mechanism,
            )
        return draw_seeded(
            release.counts,
            scale=release.sensitivity / epsilon,
            mechanism=self.privacy.mechanism,
            draw=stream(self.seed, "noise", self.site, key),
        )

    def _add_gaussian(self, key: str, release: Release, rho: float) -> Tensor:
        if self.noise == "seeded":
            return draw_gaussian_seeded(
                release.counts,
                scale=scale_of(release.sensitivity, rho),
                draw=stream(self.seed, "noise", self.site, key),
            )
        return draw_gaussian_from_os(
            release.counts, sensitivity=release.sensitivity, rho=rho
        )

    # -- masks ------------------------------------------------------------------------------

    def _mask(
        self, step: Step, cohort: Masked, reply: Values, wide_fields: Collection[str]
    ) -> Values:
        """Return the masked contribution.  A key masks one contribution and is then deleted."""
        secrets = self.ledger.load_secret(self.site)
        if secrets is None or secrets["name"] != _name_key(cohort):
            raise Refusal(
                f"site {self.site} has no key for attempt {cohort.attempt} at "
                f"{cohort.exchange}; sites send their keys before an aggregation"
            )
        digest = digest_exchange([(step, None)], [self.site])
        if "reply" in secrets:
            if secrets["digest"] != digest:
                raise Refusal(
                    f"site {self.site} has masked its contribution to "
                    f"{cohort.exchange} for another group of sites; two aggregates "
                    "with one key would reveal the difference"
                )
            return secrets["reply"]
        own = cohort.keys.get(self.site)
        if (
            len(cohort.keys) < SMALLEST
            or own is None
            or not torch.equal(own, secrets["public"])
        ):
            raise Refusal(
                f"site {self.site} adds nothing to an aggregation over "
                f"{len(cohort.keys)} sites, because its own key is missing or there "
                f"are fewer than {SMALLEST} sites"
            )
        bound = self.privacy.bound
        coarsest = max(COARSEST, bound or 0.0)
        if cohort.bound is not None and cohort.bound > coarsest:
            raise Refusal(
                f"site {self.site} adds nothing to an aggregation with the bound "
                f"{cohort.bound:g}, which is above {coarsest:g}: with such coarse "
                "rounding, the aggregate could reveal single contributions"
            )
        part = mask_reply(
            reply,
            site=self.site,
            secret=bytes(secrets["secret"].tolist()),
            function=step.function,
            cohort=cohort,
            bound=bound,
            wide_fields=wide_fields,
        )
        kept: SumKey = {
            "name": secrets["name"],
            "public": secrets["public"],
            "digest": digest,
            "reply": part,
        }
        self.ledger.hide(self.site, kept)
        return part


def _name_key(cohort: Masked) -> str:
    return f"{cohort.exchange}|{cohort.attempt}"


def _to_tensor(content: bytes) -> Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)
