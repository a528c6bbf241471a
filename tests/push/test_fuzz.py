"""C61: whatever arrives, verifying refuses in its one way or passes, and reading gives what can be stored. Never a 500."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchboard.json_bounds import fault_in, unstorable
from switchboard.push.incoming import Incoming
from switchboard.push.reading import key_of, read
from switchboard.push.schemes import SCHEMES, Settings, settings_fault
from tests.push.signing import AT, PROVIDERS, passes

NAMES = (
    *("x-hub-signature-256", "x-gitea-signature", "x-forgejo-signature", "x-gitlab-token", "stripe-signature", "x-signature"),
    *("x-slack-request-timestamp", "x-slack-signature", "webhook-id", "webhook-timestamp", "webhook-signature", "content-type"),
    *("x-github-event", "x-gitea-event", "x-github-delivery", "idempotency-key", "x-my"),
)
FRAGMENTS = (
    *(
        b"sha256=",
        b"v1,",
        b"v1=",
        b"v0=",
        b"t=",
        b",",
        b"=",
        b" ",
        b".",
        b"0" * 64,
        str(AT).encode(),
        b"\xff",
        b"\0",
        b"ping",
        b"push",
    ),
    *(b"application/x-www-form-urlencoded", b"issues", "٣".encode()),
)
VALUES = st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(FRAGMENTS), max_size=6).map(b"".join))
HEADERS = st.lists(st.tuples(st.one_of(st.sampled_from(NAMES).map(str.encode), st.binary(max_size=8)), VALUES), max_size=8)

WORDS = st.sampled_from(
    (
        *("action", "type", "id", "event", "event_id", "challenge", "url_verification", "repository", "full_name", "number"),
        *(
            "commits",
            "head_commit",
            "message",
            "ref",
            "issue",
            "title",
            "object_kind",
            "object_attributes",
            "iid",
            "data",
            "object",
        ),
        *("channel", "user", "text", "command", "name", "payload", "push", "merge_request", "total_commits_count"),
    )
)
TEXTS = st.one_of(WORDS, st.text(st.characters(), max_size=10))  # half surrogate pairs included
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=5)),
    max_leaves=12,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda v: b"payload=" + json.dumps(v).encode()),
)
SECRETS = st.lists(st.one_of(st.text(st.characters(), max_size=12), st.just(""), st.just("whsec_MDEyMzQ1Njc=")), max_size=3)

# The same examples each time, as in the rest of the suite: nobody's change fails for an example that it did not bring.
QUICK = settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(
    scheme=st.sampled_from(SCHEMES),
    headers=HEADERS,
    body=BODIES,
    secrets=SECRETS,
    at=st.one_of(st.just(float(AT)), st.floats()),
    given_settings=st.builds(
        Settings,
        header=st.sampled_from((None, "X-My")),
        algorithm=st.sampled_from((None, "sha1", "sha512")),
        encoding=st.sampled_from((None, "hex", "base64")),
    ),
)
def test_nobody_gets_in_by_chance(
    scheme: Any, headers: list[tuple[bytes, bytes]], body: bytes, secrets: list[str], at: float, given_settings: Settings
) -> None:
    """Refused, and in the one set of words; only GitLab's token could be hit upon, being short in this test."""
    delivery = Incoming(headers=headers, body=body, at=at)
    if scheme != "gitlab":
        assert not passes(scheme, secrets, delivery, given_settings)
    else:
        passes(scheme, secrets, delivery, given_settings)


@QUICK
@given(scheme=st.sampled_from(SCHEMES), headers=HEADERS, body=BODIES)
def test_whatever_is_read_can_be_stored(scheme: Any, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """R22: within the bounds of the columns, without NUL and half surrogate pairs."""
    delivery = Incoming(headers=headers, body=body, at=0.0)
    found = read(scheme, delivery)
    for text, chars_max in ((found.delivery_id, 200), (found.kind, 200), (found.title, 1_000), (found.content_type, 200)):
        if text is not None:
            assert 0 < len(text) <= chars_max
            assert not unstorable(text)
            assert text.splitlines() == [text.strip()]
    assert fault_in(body if found.payload is None else found.payload.encode()) is None
    assert 1 <= len(key_of("n" * 63, found, body).encode()) <= 512
    assert found.challenge is None or not unstorable(found.challenge)
    assert not unstorable(delivery.redacted_headers())
    assert fault_in(delivery.redacted_headers().encode()) is None


@QUICK
@given(body=st.binary(max_size=200), name=st.sampled_from(sorted(PROVIDERS)), place=st.integers(0), bit=st.integers(0, 7))
def test_what_is_signed_passes_and_one_bit_of_it_does_not(body: bytes, name: str, place: int, bit: int) -> None:
    """Any bytes at all, and any single bit of them."""
    provider = PROVIDERS[name]
    signed = provider.sign(provider.parts(body))
    headers = [(key.encode(), value.encode()) for key, value in signed.items()]
    secrets = list(provider.secrets[:1])
    assert passes(provider.scheme, secrets, Incoming(headers=headers, body=body, at=AT))
    if body:
        place %= len(body)
        twin = body[:place] + bytes([body[place] ^ 1 << bit]) + body[place + 1 :]
        assert not passes(provider.scheme, secrets, Incoming(headers=headers, body=twin, at=AT))


@QUICK
@given(header=st.text(st.characters(), max_size=12))
def test_a_header_that_can_be_set_can_be_asked_for(header: str) -> None:
    """Whatever is found right as a setting works as one; whatever is not is told, and nothing is raised."""
    if settings_fault("hmac", Settings(header=header)) is None:
        assert not passes(
            "hmac", ["a secret"], Incoming(headers=[(header.lower().encode(), b"x")], body=b"", at=0.0), Settings(header=header)
        )


def test_deep_nesting_is_no_error() -> None:
    """Neither balanced nor unbalanced, plain or in a form."""
    for text in (b"[" * 20_000, b"[" * 2_000 + b"]" * 2_000, b'{"a":' * 20_000, b'{"a":' * 90 + b"1" + b"}" * 90):
        for body in (text, b"payload=" + text):
            read("github", Incoming(headers=[(b"content-type", b"application/x-www-form-urlencoded")], body=body, at=0.0))
