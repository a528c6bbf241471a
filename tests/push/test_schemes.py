"""C61, C56: who may make a delivery. Signatures are computed by `signing`, or were published by those who send them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from itertools import product

import attrs
import pytest

from switchboard.errors import Unauthorized
from switchboard.push.incoming import Incoming
from switchboard.push.schemes import (
    REFUSAL,
    SCHEMES,
    SIGNATURES_MAX,
    SIGNED,
    Algorithm,
    Encoding,
    Proof,
    Scheme,
    Settings,
    verify,
)
from tests.push import signing
from tests.push.signing import AT, OTHER, PROVIDERS, SECRET, TOLERANCE, Provider, incoming, passes

BODIES = {
    "json": b'{"action": "opened"}',
    "emoji": '{"text": "👋🏽 hello"}'.encode(),
    "upper-case escape": rb'{"text": "\u001B[0m"}',
    "lower-case escape": rb'{"text": "\u001b[0m"}',
    "trailing newline": b'{"a": 1}\n',
    "CRLF": b'{"a": 1,\r\n"b": 2}\r\n',
    "invalid UTF-8": b'{"a": "\xff\xfe"}',
    "NUL": b"\0{}",
    "empty": b"",
    "1 MB": b"x" * 1_000_000,
}

ALL = pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
TIMED = pytest.mark.parametrize(
    "provider", [PROVIDERS[name] for name in ("stripe", "slack", "standard")], ids=lambda p: p.scheme
)


def proof(scheme: Scheme, secrets: list[str], delivery: Incoming, settings: Settings | None = None) -> Proof:
    return verify(scheme, settings or Settings(), secrets, delivery, tolerance_seconds=TOLERANCE)


# What is published by those who send.


def test_githubs_own_example() -> None:
    """From "Validating webhook deliveries"."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    delivery = incoming({"x-hub-signature-256": signature}, b"Hello, World!")
    assert proof("github", ["It's a Secret to Everybody"], delivery).verified


def test_slacks_own_example() -> None:
    """From "Verifying requests from Slack"."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert proof("slack", ["8f742231b10e8888abcd99yyyzzz85a5"], incoming(headers, body, at=1531420618)).verified


@pytest.mark.parametrize("prefix", ["whsec_", ""])
def test_the_vector_of_standard_webhooks(prefix: str) -> None:
    """From the reference implementations' tests; the prefix is theirs to leave out."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    delivery = incoming(headers, b'{"test": 2432232314}', at=1614265330)
    assert proof("standard", [prefix + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], delivery).verified


# Every scheme, every kind of body: as it was signed it passes, and with anything changed it does not.


@ALL
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_raw_bytes_are_what_is_signed(provider: Provider, body: bytes) -> None:
    """C61: it passes as it was signed, and no twin of it does."""
    headers = provider.sign(provider.parts(body))
    secrets = list(provider.secrets[:1])
    assert passes(provider.scheme, secrets, incoming(headers, body))
    for twin in twins(body):
        assert not passes(provider.scheme, secrets, incoming(headers, twin))
    assert not passes(provider.scheme, list(provider.secrets[1:]), incoming(headers, body))
    for value in broken(headers[provider.header]):
        assert not passes(provider.scheme, secrets, incoming({**headers, provider.header: value}, body))


def twins(body: bytes) -> Iterator[bytes]:
    """The same body, one byte away, or as somebody in between would write it."""
    yield body + b"\n"
    yield b" " + body
    if body:
        yield bytes([body[0] ^ 1]) + body[1:]
        yield body[:-1] + bytes([body[-1] ^ 1])
        yield body[:-1]
    for rewritten in (body.replace(b"\\u001B", b"\\u001b"), body.replace(b"\r\n", b"\n"), body.rstrip()):
        if rewritten != body:
            yield rewritten


def broken(value: str) -> Iterator[str]:
    """A signature, one character away from what it was."""
    last = value.rstrip("=")[-1]
    cut = value.rindex(last)
    yield value[:cut] + ("0" if last != "0" else "1") + value[cut + 1 :]
    yield value[:-1]
    yield value + "0"
    yield value + "\xe9"
    yield "\xe9" * len(value)
    yield "\0"
    yield ","
    yield "="


@ALL
def test_a_signature_that_is_missing_or_ambiguous_is_none(provider: Provider) -> None:
    """C61: absent, empty, blank, and twice with two values; twice with the same value is what some proxies make of one."""
    body = b"{}"
    headers = provider.sign(provider.parts(body))
    value = headers.pop(provider.header)
    secrets = list(provider.secrets[:1])
    rest = list(headers.items())
    for values in (
        [],
        [""],
        [" \t"],
        [value + "\x0b"],
        [value, "x"],
        ["x", value],
        [value, ""],
        ["", value],
        [value, value + "0"],
    ):
        assert not passes(provider.scheme, secrets, incoming([*rest, *((provider.header, v) for v in values)], body))
    for values in ([value], [value, value], [f" {value}\t"]):
        assert passes(provider.scheme, secrets, incoming([*rest, *((provider.header, v) for v in values)], body))


@pytest.mark.parametrize("name", ["github", "gitea", "forgejo", "gitea as github", "slack", "hmac"])
def test_hex_is_lower_case(name: str) -> None:
    """There is one way to write a signature: nobody sends another, and whatever is not it is refused."""
    provider = PROVIDERS[name]
    headers = provider.sign(provider.parts(b"{}"))
    prefix, _, digest = headers[provider.header].rpartition("=")
    headers[provider.header] = prefix + ("=" if prefix else "") + digest.upper()
    assert not passes(provider.scheme, [SECRET], incoming(headers, b"{}"))


def test_githubs_sha1_proves_nothing() -> None:
    """Neither in its own header, nor in the other's, nor where both stand and the better one is wrong."""
    sha1 = "sha1=" + hmac.new(SECRET.encode(), b"{}", hashlib.sha1).hexdigest()
    good = signing.github(Provider(scheme="github", sign=signing.github, header="").parts(b"{}"))["x-hub-signature-256"]
    for headers in (
        {"x-hub-signature": sha1},
        {"x-hub-signature-256": sha1},
        {"x-hub-signature": sha1, "x-hub-signature-256": "sha256=" + "0" * 64},
        {"x-hub-signature": good},
    ):
        assert not passes("github", [SECRET], incoming(headers, b"{}"))
    for prefix in ("", "sha512=", "SHA256=", "sha256:", "sha256= ", "sha256=sha256="):
        assert not passes("github", [SECRET], incoming({"x-hub-signature-256": good.replace("sha256=", prefix)}, b"{}"))


def test_gitea_believes_the_first_of_its_headers() -> None:
    """A wrong signature of its own is not mended by a good one in another's header."""
    good, bad = signing.sha256(SECRET, b"{}"), "0" * 64
    both = [("x-gitea-signature", good), ("x-forgejo-signature", good), ("x-hub-signature-256", "sha256=" + good)]
    assert passes("gitea", [SECRET], incoming(both, b"{}"))
    assert not passes("gitea", [SECRET], incoming([("x-gitea-signature", bad), *both[1:]], b"{}"))
    assert not passes("gitea", [SECRET], incoming([("x-forgejo-signature", bad), both[2]], b"{}"))
    assert not passes("gitea", [SECRET], incoming({"x-gitea-signature": "sha256=" + good}, b"{}"))


def test_gitlab_compares_a_token() -> None:
    """It proves who sent, not what was sent: any body passes, and the mode says so."""
    for body in BODIES.values():
        assert passes("gitlab", [SECRET], incoming({"x-gitlab-token": SECRET}, body))
    found = proof("gitlab", [OTHER, SECRET], incoming({"x-gitlab-token": SECRET}, b"{}"))
    assert found == Proof(verified=True, trust_mode="token", detail="gitlab token, secret 2 of 2")
    for value in ("", SECRET[:-1], SECRET + "x", SECRET.lower(), "\xe9", f"{SECRET}, {SECRET}"):
        assert not passes("gitlab", [SECRET], incoming({"x-gitlab-token": value}, b"{}"))
    assert not passes("gitlab", [SECRET], incoming([("x-gitlab-token", SECRET), ("x-gitlab-token", OTHER)], b"{}"))
    assert not passes("gitlab", [SECRET], incoming({}, b"{}"))


# Time.


@TIMED
@pytest.mark.parametrize("seconds", [0, 1, TOLERANCE - 1, TOLERANCE])
def test_a_clock_may_be_wrong_by_exactly_the_tolerance(provider: Provider, seconds: int) -> None:
    """Both ways; not by a second more, and not by a millisecond."""
    headers = provider.sign(provider.parts(b"{}"))
    secrets = list(provider.secrets[:1])
    for way in (-1, 1):
        assert passes(provider.scheme, secrets, incoming(headers, b"{}", at=AT + way * seconds))
        for late in (TOLERANCE + 1, TOLERANCE + 0.001, 10 * TOLERANCE):
            assert not passes(provider.scheme, secrets, incoming(headers, b"{}", at=AT + way * late))


@TIMED
@pytest.mark.parametrize(
    "time",
    [
        *(
            "",
            "x",
            "-1700000000",
            "+1700000000",
            "1700000000.0",
            "1.7e9",
            "0x6553f100",
            "17 00000000",
            "1_700_000_000",
            "٣",
            "²",
        ),
        *("1" * 13, "9" * 5_000, "0" * 12, "NaN", "inf", "\xa01700000000", "1700000000\x0b", "1700000000\0"),
    ],
)
def test_a_time_is_up_to_twelve_digits(provider: Provider, time: str) -> None:
    """Also where it was signed as it stands, by the right secret."""

    class Odd(int):
        def __str__(self) -> str:
            return time

    parts = attrs.evolve(provider.parts(b"{}"), at=Odd(AT))
    headers = {name: value.encode().decode("latin-1") for name, value in provider.sign(parts).items()}
    assert not passes(provider.scheme, list(provider.secrets[:1]), incoming(headers, b"{}"))


@TIMED
def test_the_time_is_signed(provider: Provider) -> None:
    """C56: a captured delivery cannot be made fresh."""
    headers = provider.sign(provider.parts(b"{}"))
    assert provider.time is not None
    headers[provider.time] = headers[provider.time].replace(str(AT), str(AT + 1))
    assert not passes(provider.scheme, list(provider.secrets[:1]), incoming(headers, b"{}"))


@TIMED
def test_a_time_keeps_its_leading_zeros(provider: Provider) -> None:
    """What is signed is what was written, not the number that it means."""

    class Padded(int):
        def __str__(self) -> str:
            return f"00{AT}"

    parts = attrs.evolve(provider.parts(b"{}"), at=Padded(AT))
    assert passes(provider.scheme, list(provider.secrets[:1]), incoming(provider.sign(parts), b"{}"))


@TIMED
def test_a_broken_clock_of_ours_opens_nothing(provider: Provider) -> None:
    """NaN is near to nothing."""
    headers = provider.sign(provider.parts(b"{}"))
    for at in (float("nan"), float("inf"), float("-inf"), 0.0):
        assert not passes(provider.scheme, list(provider.secrets[:1]), incoming(headers, b"{}", at=at))


# Each scheme's own grammar.


def test_stripes_other_versions_are_ignored() -> None:
    """`v0` is for Stripe's tests and proves nothing; a header may hold what we do not know."""
    headers = PROVIDERS["stripe"].sign(PROVIDERS["stripe"].parts(b"{}"))
    time, good = headers["stripe-signature"].split(",")
    digest = good.removeprefix("v1=")
    for value in (f"{time},v0=abc,{good}", f"{good},{time}", f"{time}, {good}", f"{time},{good},v2", f"{time},,{good},x=y=z"):
        assert passes("stripe", [SECRET], incoming({"stripe-signature": value}, b"{}")), value
    for value in (
        *(
            f"{time},v0={digest}",
            f"{time},V1={digest}",
            f"{time},v1={digest.upper()}",
            f"{time}",
            good,
            f"{time},v1=",
            f"{time},v1",
        ),
        *(
            f"{time},{time},{good}",
            f"t=1,{time},{good}",
            f"{time},t=1,{good}",
            f"T={AT},{good}",
            f"t= {AT},{good}",
            f"{time};{good}",
        ),
    ):
        assert not passes("stripe", [SECRET], incoming({"stripe-signature": value}, b"{}")), value


def test_standards_other_versions_are_ignored() -> None:
    """`v1a` is asymmetric; a list may hold what we do not know."""
    provider = PROVIDERS["standard"]
    headers = provider.sign(provider.parts(b"{}"))
    good = headers["webhook-signature"]
    digest = good.removeprefix("v1,")
    for value in (f"v1a,abc {good}", f"{good} v2,x", f"{good}  v1,abc", f"v1 {good}", f", {good}"):
        assert passes("standard", list(provider.secrets), incoming({**headers, "webhook-signature": value}, b"{}")), value
    for value in (
        f"v1a,{digest}",
        f"V1,{digest}",
        digest,
        f"v1={digest}",
        f"v1, {digest}",
        f"{good},v1",
        f"v1,{digest.rstrip('=')}",
    ):
        assert not passes("standard", list(provider.secrets), incoming({**headers, "webhook-signature": value}, b"{}")), value


def test_standard_signs_its_id() -> None:
    """C56: the same delivery under a new id, or under none, is refused."""
    provider = PROVIDERS["standard"]
    headers = provider.sign(provider.parts(b"{}"))
    for other in ("msg_2", "MSG_1", "msg_1x", "", "\xe9"):
        assert not passes("standard", list(provider.secrets), incoming({**headers, "webhook-id": other}, b"{}"))
    del headers["webhook-id"]
    assert not passes("standard", list(provider.secrets), incoming(headers, b"{}"))


def test_no_signature_of_standards_fits_two_deliveries() -> None:
    """Its parts are joined by dots: an id with one inside could be read as id and time of another delivery."""
    provider = PROVIDERS["standard"]
    parts = attrs.evolve(provider.parts(f"{AT + 1}.rest".encode()), id="msg")
    headers = provider.sign(parts)
    assert passes("standard", list(provider.secrets), incoming(headers, parts.body))
    moved = {**headers, "webhook-id": f"msg.{AT}", "webhook-timestamp": str(AT + 1)}
    assert not passes("standard", list(provider.secrets), incoming(moved, b"rest"))


def test_a_header_full_of_signatures_is_refused() -> None:
    """Guessing costs a request for each twenty guesses."""
    for name, join in (("stripe", ",v1={}"), ("standard", " v1,{}")):
        provider = PROVIDERS[name]
        headers = provider.sign(provider.parts(b"{}"))
        more = "".join(join.format(n) for n in range(SIGNATURES_MAX - 1))
        full = headers[provider.header] + more
        assert passes(provider.scheme, list(provider.secrets), incoming({**headers, provider.header: full}, b"{}"))
        over = full + join.format("x")
        assert not passes(provider.scheme, list(provider.secrets), incoming({**headers, provider.header: over}, b"{}"))


@pytest.mark.parametrize(("algorithm", "encoding"), [*product(["sha1", "sha256", "sha512"], ["hex", "base64"])])
def test_the_generic_scheme_as_it_is_told(algorithm: Algorithm, encoding: Encoding) -> None:
    """Header, algorithm and encoding are settings; the algorithm may stand before the digest, and no other."""
    settings = Settings(header="X-My-Digest", algorithm=algorithm, encoding=encoding)
    body = BODIES["emoji"]
    digest = hmac.new(SECRET.encode(), body, getattr(hashlib, algorithm)).digest()
    value = digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()
    for good in (value, f"{algorithm}={value}"):
        assert passes("hmac", [SECRET], incoming({"x-my-digest": good}, body), settings)
        assert not passes("hmac", [OTHER], incoming({"x-my-digest": good}, body), settings)
        assert not passes("hmac", [SECRET], incoming({"x-my-digest": good}, body + b" "), settings)
        assert not passes("hmac", [SECRET], incoming({"x-signature": good}, body), settings)
    others = [f"{other}={value}" for other in ("sha1", "sha256", "sha512", "SHA1", "") if other != algorithm]
    for bad in (*others, f"{algorithm}={algorithm}={value}", f"{algorithm}:{value}", value[:-1]):
        assert not passes("hmac", [SECRET], incoming({"x-my-digest": bad}, body), settings)
    other_encoding: Encoding = "base64" if encoding == "hex" else "hex"
    assert not passes("hmac", [SECRET], incoming({"x-my-digest": value}, body), attrs.evolve(settings, encoding=other_encoding))


def test_base64_has_one_spelling() -> None:
    """Without padding, in the URL's alphabet, or with other spare bits it is not the signature."""
    settings = Settings(encoding="base64")
    bodies = (str(n).encode() for n in range(1_000))
    body, value = next(
        (body, value) for body in bodies if {"+", "/"} <= set(value := signing.sha256_base64(SECRET.encode(), body))
    )
    assert passes("hmac", [SECRET], incoming({"x-signature": value}, body), settings)
    spare = value[:-2] + chr(ord(value[-2]) + 1) + "="
    for other in (value.rstrip("="), value.replace("+", "-").replace("/", "_"), value + "=", spare):
        assert not passes("hmac", [SECRET], incoming({"x-signature": other}, body), settings)


# Secrets.


@pytest.mark.parametrize("name", ["stripe", "standard"])
def test_any_pair_of_secret_and_signature_will_do(name: str) -> None:
    """A rotation: each side holds up to three, and one in common is enough; none in common is not."""
    provider = PROVIDERS[name]
    pool = [f"{n}th secret of the pool" for n in range(3)]
    if name == "standard":
        pool = ["whsec_" + base64.b64encode(secret.encode()).decode() for secret in pool]
    subsets = [[s for s, chosen in zip(pool, picks, strict=True) if chosen] for picks in product([0, 1], repeat=3)]
    for held, signed in product(subsets, subsets):
        headers = provider.sign(signing.Parts(body=b"{}", secrets=signed))
        common = [place for place, secret in enumerate(held, 1) if secret in signed]
        if common:
            found = proof(provider.scheme, held, incoming(headers, b"{}"))
            assert found.detail == f"{name} signature, secret {common[0]} of {len(held)}"
        else:
            assert not passes(provider.scheme, held, incoming(headers, b"{}"))


@ALL
def test_the_proof_says_which_secret(provider: Provider) -> None:
    """For the operator who rotates: which one is still in use, and not what it is."""
    headers = provider.sign(provider.parts(b"{}"))
    mine, other = provider.secrets
    for held, place in (([mine], 1), ([other, mine], 2), ([mine, other], 1), ([other, "", mine], 3), ([mine, mine], 1)):
        expected = f"{provider.scheme} signature, secret {place} of {len(held)}"
        assert proof(provider.scheme, held, incoming(headers, b"{}")) == Proof(
            verified=True, trust_mode="signature", detail=expected
        )


@ALL
@pytest.mark.parametrize("secrets", [[], [""], ["", ""], [" "], ["\t\n"]], ids=repr)
def test_without_a_secret_nothing_passes(provider: Provider, secrets: list[str]) -> None:
    """Never open by accident: not even what is rightly signed with the empty key."""
    sign_with = secrets[:1] or [""]
    headers = provider.sign(signing.Parts(body=b"{}", secrets=sign_with))
    assert not passes(provider.scheme, secrets, incoming(headers, b"{}"))
    assert not passes("gitlab", secrets, incoming({"x-gitlab-token": sign_with[0]}, b"{}"))


@pytest.mark.parametrize("scheme", sorted(SIGNED))
def test_an_unsigned_delivery_never_passes(scheme: Scheme) -> None:
    """With whatever secrets and settings, and with headers of all other schemes."""
    for settings in (
        Settings(),
        Settings(header="content-type"),
        Settings(header=""),
        Settings(header="x y", encoding="base64"),
    ):
        for secrets in ([], [""], [SECRET]):
            assert not passes(scheme, secrets, incoming({"content-type": "application/json"}, b"{}"), settings)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_=", "whsec_not base64!", "a", "whsec_é", "\ud800", "whsec_\ud800"])
def test_a_secret_that_is_no_key_never_fits(secret: str) -> None:
    """It should not have been set; where it was, it opens nothing, and the one beside it still does."""
    provider = PROVIDERS["standard"]
    signature = "v1," + signing.sha256_base64(b"", f"msg_1.{AT}.{{}}".encode())
    empty = {**provider.sign(provider.parts(b"{}")), "webhook-signature": signature}
    assert not passes("standard", [secret], incoming(empty, b"{}"))
    good = provider.sign(provider.parts(b"{}"))
    assert passes("standard", [secret, provider.secrets[0]], incoming(good, b"{}"))


def test_the_address_alone() -> None:
    """The scheme `token` proves nothing, says so, and looks at nothing."""
    expected = Proof(verified=False, trust_mode="token", detail="the address alone")
    assert proof("token", [], incoming({}, b"")) == expected
    assert proof("token", [SECRET], incoming({"x-gitlab-token": OTHER}, b"\xff")) == expected
    assert set(SCHEMES) - SIGNED == {"token"}


def test_all_pairs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant time: that the first one fits is not seen in how many are looked at."""
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    provider = PROVIDERS["stripe"]
    held = ["first secret", "second secret", "third secret"]
    headers = provider.sign(signing.Parts(body=b"{}", secrets=[*held, OTHER]))
    monkeypatch.setattr(hmac, "compare_digest", spy)
    assert passes("stripe", held, incoming(headers, b"{}"))
    assert len(compared) == 12
    assert all(isinstance(text, bytes) for pair in compared for text in pair)


def test_a_refusal_tells_nothing() -> None:
    """C61: 401 without a word of what was wrong, and nothing of the delivery in it."""
    with pytest.raises(Unauthorized) as caught:
        proof("github", [SECRET], incoming({"x-hub-signature-256": "sha256=" + "0" * 64}, b"{}"))
    assert (caught.value.detail, caught.value.status, caught.value.code) == (REFUSAL, 401, "unauthorized")
