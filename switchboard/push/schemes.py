"""How a webhook delivery proves who sent it, scheme by scheme. Pure; no I/O.

Every scheme says which bytes a secret must give (`_Claim`), and one place compares them: over the raw body, in constant time,
every secret with every signature. Whatever is missing, malformed, stale or wrong is refused in the same words (C61).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from secrets import token_bytes, token_urlsafe
from typing import Final, Literal, get_args

import attrs

from switchboard.errors import Unauthorized
from switchboard.push.incoming import Incoming

Scheme = Literal["github", "gitlab", "gitea", "stripe", "slack", "standard", "hmac", "token"]
Algorithm = Literal["sha1", "sha256", "sha512"]
Encoding = Literal["hex", "base64"]

SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)
SIGNED: Final[frozenset[Scheme]] = frozenset(SCHEMES) - {"token"}
"""The schemes that need a secret: without one they refuse everything."""

HEADER_DEFAULT: Final = "x-signature"
ALGORITHM_DEFAULT: Final[Algorithm] = "sha256"
ENCODING_DEFAULT: Final[Encoding] = "hex"
HEADER_CHARS_MAX: Final = 100

SECRET_BYTES_MIN: Final = 8
"""A key shorter than this could be found by trying them all against one captured delivery."""
SECRET_CHARS_MAX: Final = 256
SECRET_BYTES_NEW: Final = 32
STANDARD_PREFIX: Final = "whsec_"

SIGNATURES_MAX: Final = 20
"""A provider that changes its secret sends two or three."""
TIMESTAMP_DIGITS_MAX: Final = 12

REFUSAL: Final = "The delivery could not be verified."

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_FOR_SIGNATURES: Final = re.compile(
    r"content-.*|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|host|expect|date", re.IGNORECASE
)
_TIMESTAMP: Final = re.compile(rf"[0-9]{{1,{TIMESTAMP_DIGITS_MAX}}}")


@attrs.frozen(kw_only=True)
class Settings:
    """What the `hmac` scheme can be told, each None for its default: `X-Signature`, sha256, hex. Other schemes take none."""

    header: str | None = None
    algorithm: Algorithm | None = None
    encoding: Encoding | None = None


@attrs.frozen(kw_only=True)
class Proof:
    """What a delivery is worth. `detail` says why, for `verify_detail`, and names neither secret nor signature."""

    verified: bool
    trust_mode: Literal["signature", "token"]
    detail: str


def verify(
    scheme: Scheme, settings: Settings, secrets: Sequence[str], incoming: Incoming, *, tolerance_seconds: float
) -> Proof:
    """Proves a delivery by any one of the secrets.

    Raises Unauthorized, always in the same words, where it cannot be proved. A signed scheme without a usable secret refuses
    everything. Signed times may differ from `incoming.at` by `tolerance_seconds`, either way; schemes that sign none ignore it.
    """
    if scheme == "token":
        return Proof(verified=False, trust_mode="token", detail="the address alone")
    claim = _hmac(incoming, settings) if scheme == "hmac" else _CLAIMS[scheme](incoming, tolerance_seconds)
    place = _first_match(claim, [_key(scheme, secret) for secret in secrets])
    mode: Literal["signature", "token"] = "token" if scheme == "gitlab" else "signature"
    return Proof(verified=True, trust_mode=mode, detail=f"{scheme} {mode}, secret {place} of {len(secrets)}")


def settings_fault(scheme: Scheme, settings: Settings) -> tuple[str, str] | None:
    """The first field of `settings` that is wrong for a scheme, and what is wrong with it; None where all is well."""
    if scheme != "hmac":
        for field in ("header", "algorithm", "encoding"):
            if getattr(settings, field) is not None:
                return field, f"The scheme {scheme} has its own {field}; only hmac can be told."
        return None
    header = settings.header
    if header is None:
        return None
    if not _HEADER_NAME.fullmatch(header):
        return "header", "It is not the name of an HTTP header."
    if len(header) > HEADER_CHARS_MAX:
        return "header", f"It is longer than {HEADER_CHARS_MAX} characters."
    if _NOT_FOR_SIGNATURES.fullmatch(header):
        return "header", "This header is about the connection or the body, and cannot carry a signature."
    return None


def secret_fault(scheme: Scheme, secret: str) -> str | None:
    """Why a secret cannot be used with a scheme, without a word of the secret itself; None where it can."""
    if scheme == "token":
        return "The scheme token has no secret but its address."
    if not secret.strip():
        return "It is empty."
    if not (secret.isascii() and secret.isprintable()):
        return "It holds a character that is not printable ASCII."
    if secret != secret.strip():
        return "It begins or ends with a blank."
    if len(secret) > SECRET_CHARS_MAX:
        return f"It is longer than {SECRET_CHARS_MAX} characters."
    key = _key(scheme, secret)
    if key is None:
        return f"It is not base64, with or without {STANDARD_PREFIX} before it."
    if len(key) < SECRET_BYTES_MIN:
        return f"It is shorter than {SECRET_BYTES_MIN} bytes."
    return None


def new_secret(scheme: Scheme) -> str:
    """A fresh random secret, in the form that the scheme's providers expect."""
    if scheme == "standard":
        return STANDARD_PREFIX + b64encode(token_bytes(SECRET_BYTES_NEW)).decode()
    return token_urlsafe(SECRET_BYTES_NEW)


@attrs.frozen
class _Claim:
    """What a delivery brings to prove itself: `signatures` as they came, and what a key makes of the same delivery."""

    signatures: Sequence[bytes] = attrs.field(repr=False)
    expected: Callable[[bytes], bytes] = attrs.field(repr=False)


def _first_match(claim: _Claim, keys: Sequence[bytes | None]) -> int:
    """The place, from 1, of the first key that fits. All pairs are compared, so that time tells their number alone."""
    if len(claim.signatures) > SIGNATURES_MAX:
        raise Unauthorized(detail=REFUSAL)
    places = []
    for place, key in enumerate(keys, 1):
        if key is None:
            continue
        expected = claim.expected(key)
        if any([hmac.compare_digest(expected, signature) for signature in claim.signatures]):  # noqa: C419 - a list asks each
            places.append(place)
    if not places:
        raise Unauthorized(detail=REFUSAL)
    return places[0]


def _key(scheme: Scheme, secret: str) -> bytes | None:
    """The bytes that a secret stands for; None where it cannot be a key, an empty one above all."""
    if not secret.strip():
        return None
    try:
        if scheme == "standard":
            return b64decode(secret.removeprefix(STANDARD_PREFIX), validate=True) or None
        return secret.encode()
    except ValueError:
        return None


def _github(incoming: Incoming, _: float) -> _Claim:
    """`sha256=` and lower-case hex, as GitHub writes it; the older `sha1=` proves nothing any more."""
    return _Claim([_wanted(incoming, "x-hub-signature-256")], lambda key: b"sha256=" + _hex(key, incoming.body))


def _gitea(incoming: Incoming, tolerance_seconds: float) -> _Claim:
    """Hex without a prefix under either project's name: the first that is there decides; else as GitHub."""
    given = incoming.header("x-gitea-signature") or incoming.header("x-forgejo-signature")
    if given is None:
        return _github(incoming, tolerance_seconds)
    return _Claim([given.encode("latin-1")], lambda key: _hex(key, incoming.body))


def _gitlab(incoming: Incoming, _: float) -> _Claim:
    """The secret itself. Hashes are compared, since comparing texts of two lengths would tell the secret's."""
    given = _wanted(incoming, "x-gitlab-token")
    return _Claim([hashlib.sha256(given).digest()], lambda key: hashlib.sha256(key).digest())


def _stripe(incoming: Incoming, tolerance_seconds: float) -> _Claim:
    """`t=…,v1=…,v1=…`: exactly one time, and one v1 for each secret that Stripe signs with; other versions are ignored."""
    items = [item.strip(b" ").partition(b"=") for item in _wanted(incoming, "stripe-signature").split(b",")]
    times = [value for name, _, value in items if name == b"t"]
    if len(times) != 1:
        raise Unauthorized(detail=REFUSAL)
    content = _timely(times[0], incoming, tolerance_seconds) + b"." + incoming.body
    return _Claim([value for name, _, value in items if name == b"v1"], lambda key: _hex(key, content))


def _slack(incoming: Incoming, tolerance_seconds: float) -> _Claim:
    time = _timely(_wanted(incoming, "x-slack-request-timestamp"), incoming, tolerance_seconds)
    content = b"v0:" + time + b":" + incoming.body
    return _Claim([_wanted(incoming, "x-slack-signature")], lambda key: b"v0=" + _hex(key, content))


def _standard(incoming: Incoming, tolerance_seconds: float) -> _Claim:
    """`v1,<base64> v1,<base64>`; other versions, such as the asymmetric v1a, are ignored."""
    message_id = _wanted(incoming, "webhook-id")
    if b"." in message_id:
        raise Unauthorized(detail=REFUSAL)  # the dot parts what is signed: with one inside, one signature fits two deliveries
    time = _timely(_wanted(incoming, "webhook-timestamp"), incoming, tolerance_seconds)
    content = b".".join((message_id, time, incoming.body))
    items = [item.partition(b",") for item in _wanted(incoming, "webhook-signature").split(b" ")]
    return _Claim([value for version, _, value in items if version == b"v1"], lambda key: _base64(key, content))


def _hmac(incoming: Incoming, settings: Settings) -> _Claim:
    """The digest alone, or with `<algorithm>=` before it."""
    algorithm = settings.algorithm or ALGORITHM_DEFAULT
    written = _base64 if settings.encoding == "base64" else _hex
    given = _wanted(incoming, settings.header or HEADER_DEFAULT).removeprefix(algorithm.encode() + b"=")
    return _Claim([given], lambda key: written(key, incoming.body, algorithm))


_CLAIMS: Final[Mapping[str, Callable[[Incoming, float], _Claim]]] = {
    "github": _github,
    "gitea": _gitea,
    "gitlab": _gitlab,
    "stripe": _stripe,
    "slack": _slack,
    "standard": _standard,
}


def _wanted(incoming: Incoming, name: str) -> bytes:
    value = incoming.header(name)
    if value is None:
        raise Unauthorized(detail=REFUSAL)
    return value.encode("latin-1")


def _timely(time: bytes, incoming: Incoming, tolerance_seconds: float) -> bytes:
    """A signed time, as it was written, if it is near enough to when the delivery came."""
    text = time.decode("latin-1")
    if not _TIMESTAMP.fullmatch(text) or not abs(incoming.at - int(text)) <= tolerance_seconds:
        raise Unauthorized(detail=REFUSAL)
    return time


def _hex(key: bytes, content: bytes, algorithm: str = "sha256") -> bytes:
    """Always lower-case, and what was sent is never decoded: there is one way to write a signature, and no other passes."""
    return hmac.digest(key, content, algorithm).hex().encode()


def _base64(key: bytes, content: bytes, algorithm: str = "sha256") -> bytes:
    return b64encode(hmac.digest(key, content, algorithm))
