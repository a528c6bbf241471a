"""`POST /hooks/{token}`: what strangers push. Verified on its raw bytes, stored whole, and only then answered.

The address finds the webhook, its scheme proves the delivery, and the event and a todo for each endpoint are one transaction
of the ledger: the back half that pull adapters use. Nothing is answered 2xx that has not committed (SPEC-0003 fan-out; C56).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import structlog
import trio

from switchboard.brief_memory import BriefMemory
from switchboard.commands import Ingest, Ingested
from switchboard.config_options import Network
from switchboard.errors import NotFound, RateLimited, TooLarge, Unavailable, Unstorable
from switchboard.http import requests, wire
from switchboard.http.call import Arrival, Call, Ledger, Reply
from switchboard.http.source_address import source_address
from switchboard.ingestion import Delivery, Origin
from switchboard.push import reading, schemes
from switchboard.push.incoming import Incoming
from switchboard.sealing import SealBroken, Sealer
from switchboard.token_bucket import TokenBucket
from switchboard.webhook import Receiver, digest_of_token

REMEMBERED_SECONDS: Final = 1.0
"""What an operator changed is heard of within this time in other processes; in this one at once."""
REMEMBERED_MAX: Final = 10_000
BUCKETS_MAX: Final = 10_000
LARGE_BODY_BYTES: Final = 64 * 1024
EXAMINERS_MAX: Final = 2

_log = structlog.get_logger("hooks")


@attrs.frozen(kw_only=True)
class Limits:
    """What one delivery may be, how old, and how many may come."""

    body_bytes_max: int
    tolerance_seconds: float
    rate_per_second: float
    burst: int
    trusted_proxies: Sequence[Network]
    max_attempts: int


class Hooks:
    """The handler of every webhook's address."""

    def __init__(
        self, *, ledger: Ledger, find: Callable[[bytes], Awaitable[Receiver | None]], sealer: Sealer, limits: Limits
    ) -> None:
        self._ledger = ledger
        self._find = find
        self._sealer = sealer
        self._limits = limits
        self._remembered: BriefMemory[bytes, Receiver | None] = BriefMemory(
            seconds=REMEMBERED_SECONDS, entries_max=REMEMBERED_MAX
        )
        self._examiners = trio.CapacityLimiter(EXAMINERS_MAX)
        self._buckets: dict[str, TokenBucket] = {}

    def forget(self) -> None:
        """Drops what is remembered, after an operator's change has committed."""
        self._remembered.forget()

    async def receive(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`POST /hooks/{token}`."""
        arrival = call.arrival
        if arrival is None:
            raise RuntimeError("a webhook's route gives its handler no bytes")
        if (arrival.content_length or 0) > self._limits.body_bytes_max:
            raise TooLarge(detail=f"The body is over {self._limits.body_bytes_max} bytes.")
        hook = await self._receiver(call.path["token"])
        self._admit(hook.name)
        incoming = Incoming(headers=arrival.headers, body=await arrival.read(self._limits.body_bytes_max), at=time.time())
        proof, read = await self._examine(hook, incoming)
        if read.challenge is not None:
            return Reply(content=wire.ChallengeReply(challenge=read.challenge))
        if read.silent:
            return _accepted(proof.verified, [])
        if not hook.endpoint_ids:
            raise Unavailable(detail="This webhook is routed to no endpoint that takes todos.", retry_after_seconds=60)
        return await self._store(hook, self._ingest(hook, incoming, proof, read, arrival), proof.verified)

    async def _examine(self, hook: Receiver, incoming: Incoming) -> tuple[schemes.Proof, reading.Reading]:
        """Verifies a delivery, and reads it; a large one in a thread, since every byte is looked at more than once."""
        secrets = self._secrets(hook)
        tolerance_seconds = self._limits.tolerance_seconds

        def examine() -> tuple[schemes.Proof, reading.Reading]:
            proof = schemes.verify(hook.scheme, hook.settings, secrets, incoming, tolerance_seconds=tolerance_seconds)
            return proof, reading.read(hook.scheme, incoming)

        if len(incoming.body) <= LARGE_BODY_BYTES:
            return examine()
        return await trio.to_thread.run_sync(examine, limiter=self._examiners)

    async def _receiver(self, token: str) -> Receiver:
        sha256 = digest_of_token(token)
        hook = None if sha256 is None else await self._remembered.get(sha256, lambda: self._find(sha256))
        if hook is None:
            raise NotFound(detail="There is no such webhook.")
        return hook

    def _admit(self, name: str) -> None:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.clear()
            bucket = self._buckets[name] = TokenBucket(rate_per_second=self._limits.rate_per_second, burst=self._limits.burst)
        seconds = bucket.take(trio.current_time())
        if seconds:
            raise RateLimited(detail="Too many deliveries at this address.", retry_after_seconds=math.ceil(seconds))

    def _secrets(self, hook: Receiver) -> list[str]:
        """The secrets that can be read; one that cannot proves nothing, and takes nothing from the others."""
        readable: list[str] = []
        for sealed in hook.sealed_secrets:
            try:
                readable.append(self._sealer.open(sealed))
            except SealBroken as broken:
                remedy = "bring back webhooks.secret_key, or the file webhook-key of the state directory; or rotate its secret"
                _log.error("webhook_secret_unreadable", webhook=hook.name, reason=str(broken), remedy=remedy)
        if hook.sealed_secrets and not readable:
            raise Unavailable(detail="This webhook cannot verify anything at the moment.")
        return readable

    def _ingest(
        self, hook: Receiver, incoming: Incoming, proof: schemes.Proof, read: reading.Reading, arrival: Arrival
    ) -> Ingest:
        address = source_address(arrival.peer, arrival.headers, self._limits.trusted_proxies)
        header = hook.settings.header
        origin = Origin(
            source=hook.name,
            family="webhook",
            trust_mode=proof.trust_mode,
            verified=proof.verified,
            verify_detail=f"{proof.detail}, from {address}",
            queue=hook.queue,
            content_type=read.content_type,
        )
        return Ingest(
            delivery=Delivery(
                origin=origin,
                external_id=reading.key_of(hook.name, read, incoming.body),
                native_id=False,  # R3: a webhook's redelivery collapses on what is live; after that it is new work
                body=incoming.body,
                headers=incoming.redacted_headers([header] if header else []),
                kind=read.kind,
                title=read.title,
            ),
            payload=read.payload,
            endpoint_ids=hook.endpoint_ids,
            max_attempts=self._limits.max_attempts,
        )

    async def _store(self, hook: Receiver, command: Ingest, verified: bool) -> Reply:  # noqa: FBT001 - what the answer says
        try:
            outcome = await self._ledger.submit_one(command)
        except Unstorable as refusal:
            # Its sender would only send it again. Kept whole, for an operator to look at (R23).
            _log.error("message_quarantined", webhook=hook.name, message=command.delivery.external_id, reason=refusal.detail)
            outcome = await self._ledger.submit_one(attrs.evolve(command, quarantine=refusal.detail))
        if not isinstance(outcome, Ingested):
            raise TypeError(f"a delivery ended as {type(outcome).__name__}")
        names = dict(zip(hook.endpoint_ids, hook.endpoints, strict=True))
        targets = [
            wire.TargetOut(endpoint=names[target.endpoint_id], todo_id=target.todo_id, created=target.disposition == "stored")
            for target in outcome.targets
            if target.disposition != "refused"
        ]
        if not targets:  # revoked in this very moment: nothing was stored
            raise Unavailable(detail="This webhook is routed to no endpoint that takes todos.", retry_after_seconds=60)
        return _accepted(verified, targets)


def _accepted(verified: bool, targets: list[wire.TargetOut]) -> Reply:  # noqa: FBT001 - what the answer says
    return Reply(content=wire.AcceptedReply(verified=verified, targets=targets), status=202)
