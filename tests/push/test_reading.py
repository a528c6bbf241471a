"""What is read of a delivery: ids, kinds, what a todo keeps of the body (R22), and what makes no todo. C56, C61."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from switchboard.ingestion import KEY_BYTES_MAX, wrapper_of
from switchboard.json_bounds import fault_in
from switchboard.push.reading import READ_BYTES_MAX, Reading, key_of, read
from switchboard.push.schemes import SCHEMES, Scheme
from tests.push.signing import incoming

FORM = "application/x-www-form-urlencoded"


def reading(scheme: Scheme, payload: Any, **headers: str) -> Reading:
    """Reads a payload as JSON; a header's underscores are hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read(scheme, incoming(named, json.dumps(payload).encode()))


def form(scheme: Scheme, body: str | bytes, content_type: str = FORM, **headers: str) -> Reading:
    named = {"content-type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return read(scheme, incoming(named, body if isinstance(body, bytes) else body.encode()))


def unwrapped(payload: str | None) -> bytes:
    """The bytes in a wrapper."""
    assert payload is not None
    wrapper = json.loads(payload)
    assert (wrapper["encoding"], set(wrapper)) == ("base64", {"encoding", "data", "reason"})
    return base64.b64decode(wrapper["data"], validate=True)


# Ids and keys.


@pytest.mark.parametrize(
    ("scheme", "headers", "expected"),
    [
        ("github", {"x-github-delivery": "d1"}, "d1"),
        ("gitea", {"x-gitea-delivery": "d1", "x-github-delivery": "d2"}, "d1"),
        ("gitea", {"x-forgejo-delivery": "d1", "x-github-delivery": "d2"}, "d1"),
        ("gitea", {"x-github-delivery": "d2"}, "d2"),
        ("gitlab", {"idempotency-key": "k", "x-gitlab-event-uuid": "u"}, "k"),
        ("gitlab", {"x-gitlab-event-uuid": "u"}, "u"),
        ("standard", {"webhook-id": "msg_1"}, "msg_1"),
        ("hmac", {"idempotency-key": "k"}, "k"),
        ("token", {"idempotency-key": "k"}, "k"),
        ("github", {"idempotency-key": "k"}, None),
        ("token", {"x-github-delivery": "d1"}, None),
        ("github", {}, None),
        ("github", {"x-github-delivery": "  "}, None),
        ("github", {"x-github-delivery": " d1\t"}, "d1"),
        ("github", {"x-github-delivery": "D1"}, "D1"),
        ("token", {"idempotency-key": "\xa0"}, None),
    ],
)
def test_a_delivery_has_its_providers_id(scheme: Scheme, headers: dict[str, str], expected: str | None) -> None:
    """C56: blanks around it do not make it another one, its case does; a blank one is none."""
    assert read(scheme, incoming(headers, b"{}")).delivery_id == expected


@pytest.mark.parametrize(("scheme", "field"), [("stripe", "id"), ("slack", "event_id")])
def test_some_write_their_id_into_the_body(scheme: Scheme, field: str) -> None:
    """Which is signed; only a text is one."""
    assert reading(scheme, {field: "evt_1"}).delivery_id == "evt_1"
    for nothing in ({}, {field: 1}, {field: None}, {field: ["evt_1"]}, {field: ""}, {field: " \n"}, [field], field, None):
        assert reading(scheme, nothing, idempotency_key="k").delivery_id is None


@pytest.mark.parametrize("text", ["x" * 201, "é" * 101, "a\nb", "a\0b", "\ud83d", "a\x1b[0mb", "a\u202eb"], ids=ascii)
def test_an_id_that_cannot_be_kept_is_hashed(text: str) -> None:
    """R27, R22: too long, not storable, or not printable; the same one stays the same."""
    expected = "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    assert reading("stripe", {"id": text}).delivery_id == expected


def test_an_id_of_two_hundred_bytes_is_kept() -> None:
    """The bound is in bytes."""
    for text in ("x" * 200, "é" * 100):
        assert reading("stripe", {"id": text}).delivery_id == text


def test_an_id_that_stands_twice_is_none() -> None:
    """Two values are two ids: neither is believed, and the body's hash takes their place."""
    headers = [("x-github-delivery", "d1"), ("x-github-delivery", "d2")]
    assert read("github", incoming(headers, b"{}")).delivery_id is None


def test_the_key_is_the_id_or_the_body() -> None:
    """C56: never unlimited; without an id equal bodies have equal keys."""
    body = b'{"a": 1}'
    assert key_of("hooks", reading("stripe", {"id": "evt_1"}), body) == "hooks:evt_1"
    assert key_of("hooks", reading("stripe", {}), body) == "hooks:" + hashlib.sha256(body).hexdigest()


def test_a_key_is_within_its_bound() -> None:
    """The longest name with the longest id."""
    for text in ("x" * 200, "x" * 100_000, "é" * 100, "\ud83d" * 100_000):
        key = key_of("n" * 63, reading("stripe", {"id": text}), b"")
        assert len(key.encode()) <= KEY_BYTES_MAX


# Kinds.


@pytest.mark.parametrize(
    ("scheme", "headers", "payload", "expected"),
    [
        ("github", {"x-github-event": "push"}, {}, "push"),
        ("github", {"x-github-event": "pull_request"}, {"action": "opened"}, "pull_request.opened"),
        ("github", {"x-github-event": "issues"}, {"action": 1}, "issues"),
        ("github", {"x-github-event": "issues"}, {"action": ""}, "issues"),
        ("github", {"x-github-event": "issues"}, {"action": None}, "issues"),
        ("github", {"x-github-event": "issues"}, ["action"], "issues"),
        ("github", {}, {"action": "opened"}, None),
        ("gitea", {"x-gitea-event": "issues", "x-github-event": "x"}, {"action": "closed"}, "issues.closed"),
        ("gitea", {"x-forgejo-event": "push"}, {}, "push"),
        ("gitea", {"x-github-event": "push"}, {}, "push"),
        ("gitlab", {}, {"object_kind": "push"}, "push"),
        ("gitlab", {}, {"object_kind": "merge_request", "object_attributes": {"action": "open"}}, "merge_request.open"),
        ("gitlab", {}, {"object_kind": "pipeline", "object_attributes": None}, "pipeline"),
        ("gitlab", {}, {"object_attributes": {"action": "open"}}, None),
        ("stripe", {}, {"type": "invoice.paid"}, "invoice.paid"),
        ("stripe", {}, {"type": 5}, None),
        ("slack", {}, {"type": "event_callback", "event": {"type": "message"}}, "message"),
        ("slack", {}, {"type": "block_actions"}, "block_actions"),
        ("slack", {}, {"type": "event_callback", "event": "message"}, "event_callback"),
        ("standard", {}, {"type": "user.created"}, "user.created"),
        ("standard", {}, {"type": {"a": 1}}, None),
        ("hmac", {"x-github-event": "push"}, {"type": "user.created"}, None),
        ("token", {"x-github-event": "push"}, {"type": "user.created"}, None),
        ("stripe", {}, {"type": " two\nlines\0 "}, "two lines"),
        ("stripe", {}, {"type": "\ud83d"}, None),
        ("stripe", {}, {"type": "x" * 201}, "x" * 199 + "…"),
        ("stripe", {}, {"type": "x" * 200}, "x" * 200),
    ],
)
def test_kinds(scheme: Scheme, headers: dict[str, str], payload: Any, expected: str | None) -> None:
    """What happened, in the provider's own words: one line of at most 200 characters."""
    assert read(scheme, incoming(headers, json.dumps(payload).encode())).kind == expected


# What makes no todo.


@pytest.mark.parametrize(
    ("scheme", "header", "silent"),
    [
        *(("github", "x-github-event", True), ("gitea", "x-gitea-event", True), ("gitea", "x-forgejo-event", True)),
        *(("gitlab", "x-github-event", False), ("hmac", "x-github-event", False), ("token", "x-github-event", False)),
    ],
)
def test_a_ping_is_silent(scheme: Scheme, header: str, silent: bool) -> None:
    """A provider that looks whether somebody is there; only where that is what its word means."""
    assert read(scheme, incoming({header: "ping"}, b'{"zen": "Design for failure."}')).silent is silent
    assert read(scheme, incoming({header: "pings"}, b"{}")).silent is False


def test_slack_is_answered_with_its_challenge() -> None:
    """Only its own event, and only a text that can be sent."""
    asked = {"type": "url_verification", "challenge": "3eZbrw1aBm2r"}
    assert reading("slack", asked).challenge == "3eZbrw1aBm2r"
    for other in ("x" * 1_001, "", "\ud83d", "a\0", 5, None, ["x"]):
        assert reading("slack", {**asked, "challenge": other}).challenge is None
    assert reading("slack", {**asked, "type": "event_callback"}).challenge is None
    for scheme in set(SCHEMES) - {"slack"}:
        assert reading(scheme, asked).challenge is None


# Bodies.


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "body", [b'{"a": 1e999}', b' [1, "\\u001B"] \r\n', b'{"a": 1, "a": 2}', '{"a": "👋🏽"}'.encode(), b"null"]
)
def test_json_is_kept_as_it_is(scheme: Scheme, body: bytes) -> None:
    """Whatever the content type says: curl calls everything a form."""
    for content_type in ("application/json", FORM, "text/plain", ""):
        assert read(scheme, incoming({"content-type": content_type}, body)).payload is None


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "body",
    [b"", b"\n", b"hello", b"\xff", b'{"a": "\\u0000"}', b'"\\ud83d"', b"[" * 101 + b"]" * 101, b"1" * 1_001, b"NaN"],
    ids=lambda b: ascii(b)[:12],
)
def test_what_cannot_be_kept_is_wrapped(scheme: Scheme, body: bytes) -> None:
    """R22: never refused for that; the bytes come back as they were."""
    found = read(scheme, incoming({}, body))
    assert unwrapped(found.payload) == body
    assert found.payload == wrapper_of(body)
    assert fault_in((found.payload or "").encode()) is None


def test_a_body_that_cannot_be_kept_is_read_all_the_same() -> None:
    """Slack cuts texts in the middle of an emoji: still one knows which event it is, and retries are the same."""
    body = b'{"event_id": "Ev1", "event": {"type": "message", "channel": "C1", "user": "U1", "text": "hi \\ud83d\\u0000"}}'
    found = read("slack", incoming({}, body))
    assert (found.delivery_id, found.kind, found.title) == ("Ev1", "message", "C1 U1: hi")
    assert unwrapped(found.payload) == body


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_json_in_a_form_is_the_payload(scheme: Scheme) -> None:
    """GitHub's other content type, and Slack's clicks: the very text that was encoded."""
    text = '{"a": "b c+d&e=f%", "é": "\\u001B👋"}'
    for encode in (quote, lambda text: urlencode({"payload": text}).removeprefix("payload=")):
        for before, after in (("", ""), ("a=1&", "&b=2"), ("", "&payload=%7B%7D")):
            for content_type in (FORM, FORM.upper() + "; charset=utf-8"):
                assert form(scheme, f"{before}payload={encode(text)}{after}", content_type).payload == text


@pytest.mark.parametrize(
    "body",
    [
        *("payload=", "payload", "payload=x", "payload=%7B", "payload=%FF", "payload=%22%5Cu0000%22", "payload=NaN"),
        *("payload=" + "[" * 101 + "]" * 101, "payload=" + "1" * 1_001, "a=1", "&", "=", "Payload=%7B%7D", "a=payload={}"),
        *("&" * 200 + "payload={}", "payload=%22%5Cud83d%22"),
    ],
    ids=lambda b: b[:24],
)
def test_a_form_that_holds_none_is_wrapped_whole(body: str) -> None:
    """R22: the raw body, and not its field, so that nothing of it is lost."""
    assert unwrapped(form("github", body).payload) == body.encode()


def test_a_form_is_one_by_its_content_type() -> None:
    """A text that only looks like one is kept as what it is."""
    for content_type in ("application/json", "text/plain", "multipart/form-data", ""):
        assert unwrapped(form("github", "payload={}", content_type).payload) == b"payload={}"


def test_a_form_is_read_like_json() -> None:
    """Kind and title stand in its payload."""
    payload = {"action": "opened", "repository": {"full_name": "o/r"}, "issue": {"number": 1, "title": "t"}}
    found = form("github", urlencode({"payload": json.dumps(payload)}), x_github_event="issues")
    assert (found.kind, found.title) == ("issues.opened", "o/r #1 opened: t")


def test_a_slash_command_is_a_form_of_its_own() -> None:
    """It is wrapped, and says what it is."""
    body = urlencode({"command": "/deploy", "text": "main now", "channel_name": "general", "user_name": "bob"})
    found = form("slack", body)
    assert (found.kind, found.title) == ("/deploy", "general bob: /deploy main now")
    assert unwrapped(found.payload) == body.encode()
    assert form("github", body).kind is None


def test_a_body_above_the_bound_is_kept_and_not_read() -> None:
    """An event header still says its kind."""
    body = b'{"action": "opened", "id": "evt_1", "x": "' + b"x" * READ_BYTES_MAX + b'"}'
    found = read("github", incoming({"x-github-event": "issues"}, body))
    assert (found.kind, found.title, found.payload) == ("issues", "issues", None)
    assert read("stripe", incoming({}, body)).delivery_id is None


def test_the_content_type_is_kept() -> None:
    """As it came, in one line of at most 200 characters."""
    assert form("token", "", "text/plain; charset=UTF-8").content_type == "text/plain; charset=UTF-8"
    assert form("token", "", "x" * 500).content_type == "x" * 199 + "…"
    assert reading("token", {}).content_type is None
