"""One line for each delivery, so that a person can read the queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchboard.push.reading import read
from switchboard.push.schemes import Scheme
from switchboard.push.titles import TITLE_CHARS_MAX, one_line
from tests.push.signing import incoming

PLACE = {"repository": {"full_name": "owner/repo"}}
PROJECT = {"project": {"path_with_namespace": "group/sub/project"}}
COMMITS = [{"message": "First\n\nbody"}, {"message": "Second"}, {"message": "Third line\r\nmore"}]


def title(scheme: Scheme, payload: Any, event: str = "") -> str | None:
    return read(scheme, incoming({"x-github-event": event}, json.dumps(payload).encode())).title


def github(event: str, **payload: Any) -> str | None:
    found = title("github", {**PLACE, **payload}, event)
    assert found == title("gitea", {**PLACE, **payload}, event)
    return found


def gitlab(kind: str, **payload: Any) -> str | None:
    return title("gitlab", {"object_kind": kind, **PROJECT, **payload})


def test_a_push() -> None:
    """Where, which branch, the first line of its head, how many commits."""
    head = {"head_commit": COMMITS[2]}
    assert github("push", ref="refs/heads/main", commits=COMMITS, **head) == "owner/repo main: Third line (3 commits)"
    assert github("push", ref="refs/heads/a/b", commits=COMMITS[:1], **head) == "owner/repo a/b: Third line (1 commit)"
    assert github("push", ref="refs/tags/v1", commits=[], **head) == "owner/repo v1: Third line"
    assert github("push", ref="refs/heads/main", head_commit=None, commits=[], deleted=True) == "owner/repo main: deleted"
    assert github("push", ref="refs/heads/main", commits=COMMITS, head_commit={"message": " \n"}) == "owner/repo main: push"
    assert github("push") == "owner/repo: push"
    assert (
        title("gitea", {**PLACE, **head, "commits": COMMITS, "total_commits": 40}, "push")
        == "owner/repo: Third line (40 commits)"
    )


def test_a_pull_request_or_an_issue() -> None:
    """Its number, what happened, its title; what happens around one says what and then which."""
    thing = {"number": 12, "title": "A title"}
    assert github("pull_request", action="opened", pull_request=thing) == "owner/repo #12 opened: A title"
    assert github("issues", action="closed", issue=thing) == "owner/repo #12 closed: A title"
    assert github("issue_comment", action="created", issue=thing) == "owner/repo issue_comment.created #12: A title"
    assert github("pull_request_review", action="submitted", pull_request=thing) == (
        "owner/repo pull_request_review.submitted #12: A title"
    )
    assert github("issues", action="closed", issue={"number": 12}) == "owner/repo #12 closed"
    assert github("issues", issue=thing) == "owner/repo #12: A title"


def test_anything_else_of_a_forge() -> None:
    """Where, and what."""
    assert github("star", action="created") == "owner/repo star.created"
    assert github("issues", action="closed", issue={"number": True, "title": "x"}) == "owner/repo issues.closed"
    assert title("github", {}, "star") == "star"
    assert title("github", {"repository": "x"}, "star") == "star"
    assert title("github", PLACE) == "owner/repo"
    assert title("github", {}) is None
    assert title("github", [], "star") == "star"


def test_gitlab() -> None:
    """The same from its own payloads."""
    commits = {"commits": COMMITS, "total_commits_count": 40}
    assert gitlab("push", ref="refs/heads/main", **commits) == "group/sub/project main: Third line (40 commits)"
    assert gitlab("push", ref="refs/heads/main", commits=COMMITS) == "group/sub/project main: Third line (3 commits)"
    assert gitlab("tag_push", ref="refs/tags/v1", commits=[], total_commits_count=0) == "group/sub/project v1: push"
    thing = {"iid": 12, "title": "A title", "action": "open"}
    assert gitlab("merge_request", object_attributes=thing) == "group/sub/project !12 open: A title"
    assert gitlab("issue", object_attributes=thing) == "group/sub/project #12 open: A title"
    assert gitlab("note", object_attributes={"note": "n"}, merge_request=thing) == "group/sub/project note !12: A title"
    assert gitlab("note", object_attributes={"action": "create"}, issue=thing) == "group/sub/project note.create #12: A title"
    assert gitlab("pipeline", object_attributes={"id": 1}) == "group/sub/project pipeline"
    assert title("gitlab", {}) is None


def test_stripe_and_standard() -> None:
    """The kind, and Stripe's object."""
    assert title("stripe", {"type": "invoice.paid", "data": {"object": {"id": "in_123"}}}) == "invoice.paid in_123"
    assert title("stripe", {"type": "invoice.paid", "data": []}) == "invoice.paid"
    assert title("standard", {"type": "user.created"}) == "user.created"
    assert title("standard", {"test": 1}) is None


def test_slack() -> None:
    """Where, who, and the start of what was said."""
    event = {"type": "message", "channel": "C1", "user": "U1", "text": "hello\nworld"}
    assert title("slack", {"type": "event_callback", "event": event}) == "C1 U1: hello world"
    assert title("slack", {"event": {"type": "reaction_added", "user": "U1"}}) == "U1: reaction_added"
    click = {"type": "block_actions", "channel": {"name": "general"}, "user": {"username": "bob"}}
    assert title("slack", click) == "general bob: block_actions"
    assert title("slack", {"type": "event_callback", "event": None}) == "event_callback"
    assert title("slack", {}) is None


@pytest.mark.parametrize("scheme", ["hmac", "token"])
def test_of_the_generic_schemes_nothing_is_known(scheme: Scheme) -> None:
    """No guess at a title."""
    assert title(scheme, {"type": "user.created", "title": "x", **PLACE}, "push") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\n\tb\x1b[0m\x7f\x85\u2028c", "a b [0m c"),
        ("  a   b  ", "a b"),
        ("a\0b\ud83dc\udc00", "abc"),
        ("safe\u202egnp.exe", "safegnp.exe"),
        ("👩‍💻 é ع", "👩‍💻 é ع"),
        ("\n\0\ud83d", None),
        ("", None),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 9 + "…"),
        ("x" * 100_000, "x" * 9 + "…"),
    ],
    ids=ascii,
)
def test_one_line(text: str, expected: str | None) -> None:
    """No controls, nothing that Postgres cannot hold, nothing that turns the line around; cut with a mark."""
    assert one_line(text, 10 if len(text) < 12 or text.startswith("x") else 100) == expected


def test_a_title_is_within_its_bound() -> None:
    """However long its parts."""
    thing = {"number": 12, "title": "long " * 100_000}
    found = github("issues", action="opened", issue=thing)
    assert found is not None
    assert (len(found), found[-1]) == (TITLE_CHARS_MAX, "…")
    commit = {"message": "x" * 100_000}
    pushed = github("push", ref="refs/heads/main", commits=[commit], head_commit=commit)
    assert pushed is not None
    assert len(pushed) == TITLE_CHARS_MAX
