"""What providers do, written down from their documentation with hmac, hashlib and base64 alone: nothing of the house's."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence

import attrs

from switchboard.errors import Unauthorized
from switchboard.push.incoming import Incoming
from switchboard.push.schemes import REFUSAL, Scheme, Settings, verify

AT = 1_700_000_000
TOLERANCE = 300

SECRET = "a Secret of the tests"
OTHER = "another one of them"
STANDARD_SECRET = "whsec_" + base64.b64encode(b"a Secret of the tests").decode()
STANDARD_OTHER = "whsec_" + base64.b64encode(b"another one of them").decode()


@attrs.frozen(kw_only=True)
class Parts:
    """What a provider puts together: changed before `signed` it is a good delivery, afterwards a tampered one."""

    body: bytes
    secrets: Sequence[str]
    at: int = AT
    id: str = "msg_1"


def sha256(key: str, content: bytes) -> str:
    return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()


def sha256_base64(key: bytes, content: bytes) -> str:
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


def github(parts: Parts) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + sha256(parts.secrets[0], parts.body)}


def gitea(parts: Parts) -> dict[str, str]:
    return {"x-gitea-signature": sha256(parts.secrets[0], parts.body)}


def forgejo(parts: Parts) -> dict[str, str]:
    return {"x-forgejo-signature": sha256(parts.secrets[0], parts.body)}


def stripe(parts: Parts) -> dict[str, str]:
    content = str(parts.at).encode() + b"." + parts.body
    return {"stripe-signature": ",".join([f"t={parts.at}", *(f"v1={sha256(key, content)}" for key in parts.secrets)])}


def slack(parts: Parts) -> dict[str, str]:
    signature = sha256(parts.secrets[0], b"v0:" + str(parts.at).encode() + b":" + parts.body)
    return {"x-slack-request-timestamp": str(parts.at), "x-slack-signature": "v0=" + signature}


def standard(parts: Parts) -> dict[str, str]:
    content = f"{parts.id}.{parts.at}.".encode() + parts.body
    keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in parts.secrets]
    signatures = " ".join("v1," + sha256_base64(key, content) for key in keys)
    return {"webhook-id": parts.id, "webhook-timestamp": str(parts.at), "webhook-signature": signatures}


def generic(parts: Parts) -> dict[str, str]:
    return {"x-signature": sha256(parts.secrets[0], parts.body)}


@attrs.frozen(kw_only=True)
class Provider:
    """One provider whose deliveries are signed over their body, and where its signature and its time stand."""

    scheme: Scheme
    sign: Callable[[Parts], dict[str, str]]
    header: str
    time: str | None = None
    secrets: tuple[str, str] = (SECRET, OTHER)

    def parts(self, body: bytes) -> Parts:
        return Parts(body=body, secrets=self.secrets[:1])


PROVIDERS: Mapping[str, Provider] = {
    "github": Provider(scheme="github", sign=github, header="x-hub-signature-256"),
    "gitea": Provider(scheme="gitea", sign=gitea, header="x-gitea-signature"),
    "forgejo": Provider(scheme="gitea", sign=forgejo, header="x-forgejo-signature"),
    "gitea as github": Provider(scheme="gitea", sign=github, header="x-hub-signature-256"),
    "stripe": Provider(scheme="stripe", sign=stripe, header="stripe-signature", time="stripe-signature"),
    "slack": Provider(scheme="slack", sign=slack, header="x-slack-signature", time="x-slack-request-timestamp"),
    "standard": Provider(
        scheme="standard",
        sign=standard,
        header="webhook-signature",
        time="webhook-timestamp",
        secrets=(STANDARD_SECRET, STANDARD_OTHER),
    ),
    "hmac": Provider(scheme="hmac", sign=generic, header="x-signature"),
}


def incoming(headers: Mapping[str, str] | Sequence[tuple[str, str]], body: bytes, at: float = AT) -> Incoming:
    """A delivery as ASGI gives it; header values are latin-1."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Incoming(headers=[(name.encode(), value.encode("latin-1")) for name, value in pairs], body=body, at=at)


def passes(scheme: Scheme, secrets: Sequence[str], delivery: Incoming, settings: Settings | None = None) -> bool:
    """Whether it is verified; anything but a refusal in the one set of words fails the test that asks."""
    try:
        return verify(scheme, settings or Settings(), secrets, delivery, tolerance_seconds=TOLERANCE).verified
    except Unauthorized as exc:
        said = exc.detail, exc.__context__
    assert said == (REFUSAL, None)
    return False
