"""What the tests push with: webhooks of a house, and deliveries signed independently of the code under test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import attrs
import httpx

from tests.houses import Agent, House

KEY = "shared-secret-of-the-tests"
WHSEC = "whsec_" + base64.b64encode(b"k" * 32).decode()
SECRETS: Mapping[str, str] = dict.fromkeys(("github", "gitlab", "gitea", "stripe", "slack", "hmac"), KEY) | {"standard": WHSEC}


@attrs.frozen(kw_only=True)
class Hook:
    """A webhook, with the way to push to it."""

    name: str
    path: str = attrs.field(repr=False)
    secrets: list[str] = attrs.field(repr=False)
    http: httpx.Client = attrs.field(repr=False)

    def push(self, body: bytes | str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """One delivery."""
        content = body.encode() if isinstance(body, str) else body
        return self.http.post(self.path, content=content, headers={"Content-Type": "application/json", **(headers or {})})


def hook(house: House, scheme: str, *agents: Agent, queue: str = "work", **more: Any) -> Hook:
    """A new webhook of this house, routed to these endpoints, with the tests' secret."""
    body: dict[str, Any] = {
        "name": f"hook-{uuid4().hex[:12]}",
        "scheme": scheme,
        "endpoints": [agent.name for agent in agents],
        "queue": queue,
    }
    if scheme in SECRETS:
        body["secrets"] = [SECRETS[scheme]]
    with house.operator() as operator:
        reply = operator.post("/operator/v1/webhooks", json=body | more)
    assert reply.status_code == 201, reply.text
    made = reply.json()
    return Hook(name=made["webhook"]["name"], path=made["path"], secrets=made["secrets"], http=house.client())


def hexed(message: bytes, secret: str = KEY, algorithm: str = "sha256") -> str:
    """A signature in hex."""
    return hmac.new(secret.encode(), message, getattr(hashlib, algorithm)).hexdigest()


def github(body: bytes, secret: str = KEY, **headers: str) -> dict[str, str]:
    """GitHub's headers."""
    given = {
        "X-Hub-Signature-256": f"sha256={hexed(body, secret)}",
        "X-GitHub-Delivery": str(uuid4()),
        "X-GitHub-Event": "push",
    }
    return given | {name.replace("_", "-"): value for name, value in headers.items()}


def gitea(body: bytes, secret: str = KEY) -> dict[str, str]:
    """Gitea's."""
    return {"X-Gitea-Signature": hexed(body, secret), "X-Gitea-Delivery": str(uuid4()), "X-Gitea-Event": "push"}


def gitlab(_body: bytes, secret: str = KEY) -> dict[str, str]:
    """GitLab's."""
    return {"X-Gitlab-Token": secret, "X-Gitlab-Event-UUID": str(uuid4())}


def stripe(body: bytes, secret: str = KEY, at: float | None = None) -> dict[str, str]:
    """Stripe's."""
    stamp = int(time.time() if at is None else at)
    return {"Stripe-Signature": f"t={stamp},v1={hexed(f'{stamp}.'.encode() + body, secret)}"}


def slack(body: bytes, secret: str = KEY, at: float | None = None) -> dict[str, str]:
    """Slack's."""
    stamp = int(time.time() if at is None else at)
    signature = f"v0={hexed(f'v0:{stamp}:'.encode() + body, secret)}"
    return {"X-Slack-Request-Timestamp": str(stamp), "X-Slack-Signature": signature}


def standard(body: bytes, secret: str = WHSEC, at: float | None = None, id_: str | None = None) -> dict[str, str]:
    """Standard Webhooks'."""
    stamp, id_ = int(time.time() if at is None else at), id_ or f"msg_{uuid4().hex}"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id_}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(stamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def generic(body: bytes, secret: str = KEY) -> dict[str, str]:
    """The generic scheme's, by its defaults."""
    return {"X-Signature": hexed(body, secret)}


def unsigned(_body: bytes) -> dict[str, str]:
    """The address alone."""
    return {}


SIGN: Mapping[str, Callable[..., dict[str, str]]] = {
    "github": github,
    "gitea": gitea,
    "gitlab": gitlab,
    "stripe": stripe,
    "slack": slack,
    "standard": standard,
    "hmac": generic,
    "token": unsigned,
}
"""By scheme: the headers of a good delivery of this body."""


def event(number: int = 0) -> bytes:
    """A body that every provider might send, different for each number."""
    return json.dumps({"id": f"evt_{number}_{uuid4().hex}", "event_id": f"Ev{number}{uuid4().hex}", "n": number}).encode()
