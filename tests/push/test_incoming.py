"""What a delivery carries beside its body: read without ambiguity, kept without secrets (R28)."""

from __future__ import annotations

import json

import pytest

from switchboard.push.incoming import HEADERS_KEPT_MAX, REDACTED, Incoming
from tests.push.signing import incoming

MARK = "hunter2hunter2"

SENSITIVE = (
    *(
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "set-cookie",
        "X-Gitlab-Token",
        "x-hub-signature",
        "X-Hub-Signature-256",
    ),
    *("X-Slack-Signature", "Stripe-Signature", "webhook-signature", "X-Gitea-Signature", "X-Api-Key", "x_api_key", "apikey"),
    *("X-Client-Secret", "x-password", "X-DB-Passwd", "X-Credentials", "X-Amz-Security-Token", "X-CSRFToken", "X-Auth-Key"),
)
HARMLESS = (
    *("content-type", "host", "user-agent", "x-github-event", "x-github-delivery", "idempotency-key", "webhook-id"),
    *("webhook-timestamp", "x-slack-request-timestamp", "x-forwarded-for"),
)


def kept(delivery: Incoming, *also: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = json.loads(delivery.redacted_headers(also), object_pairs_hook=lambda pairs: pairs)
    return found


def test_a_header_is_one_value() -> None:
    """Whatever case it is asked in; missing, blank and contradictory are the same."""
    values = [("x-a", " 1\t"), ("x-b", ""), ("x-c", "1"), ("x-c", "2"), ("x-d", "3"), ("x-d", " 3"), ("x-f", "4"), ("x-f", "")]
    delivery = incoming([*values, ("x-e", "\xe9\xa0")], b"")
    asked = {name: delivery.header(name) for name in ("x-a", "X-A", "x-b", "x-c", "x-d", "x-e", "x-f", "x-g", "é")}
    assert asked == {
        "x-a": "1",
        "X-A": "1",
        "x-b": None,
        "x-c": None,
        "x-d": "3",
        "x-e": "\xe9\xa0",
        "x-f": None,
        "x-g": None,
        "é": None,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        (" text/plain ;x", "text/plain"),
        ("; charset=utf-8", None),
        ("", None),
    ],
)
def test_the_media_type(value: str, expected: str | None) -> None:
    """Lower-case, without parameters."""
    assert incoming({"content-type": value}, b"").media_type() == expected


@pytest.mark.parametrize("name", SENSITIVE)
def test_what_may_be_a_secret_is_not_kept(name: str) -> None:
    """R28: the name stays, so that one sees that it came."""
    delivery = incoming({name: MARK, "x-after": "1"}, b"")
    assert kept(delivery) == [(name, REDACTED), ("x-after", "1")]


@pytest.mark.parametrize("name", HARMLESS)
def test_the_rest_is_kept(name: str) -> None:
    """An operator sees what came, and what it was."""
    assert kept(incoming({name: MARK}, b"")) == [(name, MARK)]


def test_a_header_that_the_caller_names_is_not_kept() -> None:
    """The generic scheme's own, in whatever case it was set."""
    delivery = incoming({"x-my-digest": MARK, "x-other": "1"}, b"")
    assert kept(delivery, "X-My-Digest") == [("x-my-digest", REDACTED), ("x-other", "1")]


def test_the_address_is_not_kept_where_a_proxy_repeats_it() -> None:
    """C59: the token in the path is the secret of an unsigned webhook."""
    paths = (f"https://h/hooks/{MARK}", f"/hooks/{MARK}?a=1", f"/hooks%2F{MARK}", f"//hook/{MARK}")
    headers = [("x-original-uri", path) for path in paths]
    assert MARK not in incoming(headers, b"").redacted_headers()


def test_order_and_repetition_are_kept() -> None:
    """As they came; JSON lets a name stand twice."""
    headers = [("x-b", "1"), ("x-a", "2"), ("x-b", "3"), ("x-token", "4"), ("x-token", "5")]
    assert kept(incoming(headers, b"")) == [*headers[:3], ("x-token", REDACTED), ("x-token", REDACTED)]


def test_the_headers_kept_are_bounded() -> None:
    """A hundred of them, 2,000 characters of each, and a word about the rest."""
    delivery = incoming([(f"x-{n}", "v" * 2_001) for n in range(150)], b"")
    found = kept(delivery)
    assert len(found) == HEADERS_KEPT_MAX + 1
    assert {len(value) for _, value in found[:-1]} == {2_000}
    assert found[-1] == ("…", "50 more")
    ((name, value),) = kept(incoming({"x" * 5_000 + "-token": MARK}, b""))
    assert (len(name), value) == (200, REDACTED)


def test_what_postgres_cannot_hold_is_made_harmless() -> None:
    """R22: any bytes at all become a text that a column of type json takes, and gives back as text."""
    headers = [(b"x-\0", b"a\0b"), (b"x-\xff", b"\xff\xed\xa0\x80"), (b"x-\xc3\xa9", "é👋".encode())]
    delivery = Incoming(headers=headers, body=b"", at=0.0)
    text = delivery.redacted_headers()
    assert "\\u0000" not in text
    assert "\0" not in text
    text.encode()
    assert kept(delivery) == [("x-\\x00", "a\\x00b"), ("x-\\xff", "\\xff\\xed\\xa0\\x80"), ("x-é", "é👋")]


def test_no_headers() -> None:
    """An empty object."""
    assert incoming({}, b"").redacted_headers() == "{}"


def test_nothing_of_it_is_in_its_repr() -> None:
    """R28: a traceback with locals shows neither headers nor body."""
    assert MARK not in repr(incoming({"authorization": MARK}, MARK.encode()))
