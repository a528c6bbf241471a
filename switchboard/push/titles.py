"""One line for each delivery, so that a person can read the queue. Pure; no I/O.

What providers send is looked at as it is: whatever is not where it should be leaves its words out, and nothing is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from switchboard.push.schemes import Scheme

TITLE_CHARS_MAX: Final = 1_000
SCANNED_CHARS_MAX: Final = 10_000
"""Of a text to be cut no more is looked at."""

Said = Mapping[str, object]

# Not storable (NUL, half a surrogate pair: R22), or able to turn the rest of a line around before a person's eyes.
_REMOVED: Final = re.compile("[\0\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_CONTROLS: Final = re.compile("[\x01-\x1f\x7f-\x9f\u2028\u2029]")
_BRANCH: Final = re.compile(r"refs/(?:heads|tags)/")


def title_of(scheme: Scheme, kind: str | None, said: Said) -> str | None:
    """The title of a delivery whose payload says `said`; None for schemes that know no payload, and where nothing is said."""
    write = _WRITERS.get(scheme)
    return None if write is None else one_line(write(kind, said), TITLE_CHARS_MAX)


def one_line(text: str, chars_max: int) -> str | None:
    """A text without controls and line breaks, each run of blanks one blank, cut with `…`; None where nothing is left."""
    text = _CONTROLS.sub(" ", _REMOVED.sub("", text[:SCANNED_CHARS_MAX]))
    text = " ".join(text.split())
    return (text if len(text) <= chars_max else text[: chars_max - 1] + "…") or None


def text_at(said: object, *path: str) -> str:
    """The text at a path of names; empty where there is none."""
    found = _at(said, path)
    return found if isinstance(found, str) else ""


def _forge(kind: str | None, said: Said) -> str:
    """GitHub and Gitea: a push, what happened to a pull request or an issue, or the kind alone."""
    place = text_at(said, "repository", "full_name")
    event, _, action = (kind or "").partition(".")
    if event == "push":
        return _push(place, said, text_at(said, "head_commit", "message"), _number_at(said, "total_commits"))
    for name, of_its_own in (("pull_request", "pull_request"), ("issue", "issues")):
        number = _number_at(said, name, "number")
        if number:
            words = (f"#{number}", action) if event == of_its_own else (kind, f"#{number}")
            return _line(place, *words, tail=text_at(said, name, "title"))
    return _line(place, kind)


def _gitlab(kind: str | None, said: Said) -> str:
    """As GitHub's; a merge request's number has a `!` before it, as GitLab writes it."""
    place = text_at(said, "project", "path_with_namespace")
    event, _, action = (kind or "").partition(".")
    if event in ("push", "tag_push"):
        commits = said.get("commits")
        latest = commits[-1] if isinstance(commits, list) and commits else None
        return _push(place, said, text_at(latest, "message"), _number_at(said, "total_commits_count"))
    for name, sign in (("merge_request", "!"), ("issue", "#")):
        thing = said.get("object_attributes" if event == name else name)
        number = _number_at(thing, "iid")
        if number:
            words = (sign + number, action) if event == name else (kind, sign + number)
            return _line(place, *words, tail=text_at(thing, "title"))
    return _line(place, kind)


def _push(place: str, said: Said, message: str, count: str) -> str:
    commits = said.get("commits")
    if not count and isinstance(commits, list):
        count = str(len(commits))
    first, *_ = message.strip().splitlines() or [""]
    if first and count not in ("", "0"):
        first = f"{first[:TITLE_CHARS_MAX]} ({count} commit{'' if count == '1' else 's'})"
    gone = "deleted" if said.get("deleted") is True else ""
    return _line(place, _BRANCH.sub("", text_at(said, "ref"), count=1), tail=first or gone or "push")


def _stripe(kind: str | None, said: Said) -> str:
    return _line(kind, text_at(said, "data", "object", "id"))


def _slack(kind: str | None, said: Said) -> str:
    """Where, who, and what was said: of an event, of a click (whose channel and user are objects), of a slash command."""
    event = said.get("event", said)
    channel = text_at(event, "channel") or text_at(event, "channel", "name") or text_at(event, "channel_name")
    user = text_at(event, "user") or text_at(event, "user", "username") or text_at(event, "user_name")
    return _line(channel, user, tail=_line(text_at(event, "command"), text_at(event, "text")) or kind or "")


def _standard(kind: str | None, _: Said) -> str:
    return kind or ""


def _line(*words: str | None, tail: str = "") -> str:
    head = " ".join(word for word in words if word)
    return f"{head}: {tail}" if head and tail else head or tail


def _at(said: object, path: Sequence[str]) -> object:
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _number_at(said: object, *path: str) -> str:
    found = _at(said, path)
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else ""


_WRITERS: Final[Mapping[Scheme, Callable[[str | None, Said], str]]] = {
    "github": _forge,
    "gitea": _forge,
    "gitlab": _gitlab,
    "stripe": _stripe,
    "slack": _slack,
    "standard": _standard,
}
