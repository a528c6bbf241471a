"""Hides what could be a secret in any text that leaves the house: log lines, answers, output of commands (R28, SPEC-0009)."""

from __future__ import annotations

import re

# A value longer than this is cut: a log line is for a person, and nobody may fill the disk with one request.
VALUE_CHARACTERS_MAX = 8_192

# What is looked through for secrets before the cut. Whatever lies beyond is never shown, so it needs no look.
SCANNED_CHARACTERS_MAX = 16_384

HIDDEN = "***"

# Each pattern keeps what helps the reader and hides the rest. They may hide too much (a harmless '@' late in a query),
# never too little; every repetition is bounded, so that a long line of the wrong bytes costs no time.
_SECRETS = (
    # Credentials of ours, and the signing secrets of webhooks, by their prefix.
    (re.compile(r"(sbk|sbo|whsec)(_|%5[fF])[A-Za-z0-9_\-+/=.%~]+"), rf"\1_{HIDDEN}"),
    # The token in a webhook's path, near misses of that path included (C59): /hook/…, //hooks//…, %2Fhooks%2F…
    (re.compile(r"(?i)((?:/|%2f)hooks?(?:/|%2f)+)[^\s\"'?#<>]+"), rf"\1{HIDDEN}"),
    # The password of a URL. A password may itself hold '@' or '/', so everything up to the last '@' goes.
    (re.compile(r"(?i)([a-z][a-z0-9+.\-]{0,20}://[^\s:/@\"']{0,256}):[^\s\"'<>]{0,1024}@"), rf"\1:{HIDDEN}@"),
    # password=…, as libpq and query strings write it, and "password": "…" of JSON.
    (
        re.compile(
            r"(?i)((?:password|passwd|passphrase|secret|api_?key|access_token)[\"']?\s{0,8}[=:]\s{0,8})"
            # Any number of backslashes keeps a quote inside: the text may have been through a repr already.
            r"(?:'(?:\\+.|[^'\\]){0,1024}+'?|\"(?:\\+.|[^\"\\]){0,1024}+\"?|[^\s\"',;&)}\]]+)"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s{1,8}[A-Za-z0-9_\-+/=.~]{6,}"), rf"\1 {HIDDEN}"),
)


def mask(text: str) -> str:
    """`text` with everything hidden that could be a secret, cut to VALUE_CHARACTERS_MAX."""
    text = text[:SCANNED_CHARACTERS_MAX]
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    if len(text) > VALUE_CHARACTERS_MAX:
        return text[:VALUE_CHARACTERS_MAX] + " … cut"
    return text
