"""What each tool takes: the bodies of the HTTP routes, and beside them the todo that a path would name."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from switchboard.http import requests
from switchboard.http.requests import Strict

TodoId = Annotated[str, Meta(description="The todo's `id`.")]


class TodoArguments(Strict, frozen=True, kw_only=True):
    """One todo, and nothing else."""

    todo_id: TodoId


class ClaimArguments(requests.ClaimOneBody, frozen=True, kw_only=True):
    """A claim of one todo."""

    todo_id: TodoId


class HeartbeatArguments(requests.HeartbeatBody, frozen=True, kw_only=True):
    """A longer lease."""

    todo_id: TodoId


class CompleteArguments(requests.CompleteBody, frozen=True, kw_only=True):
    """A completion."""

    todo_id: TodoId


class FailArguments(requests.FailBody, frozen=True, kw_only=True):
    """A failure."""

    todo_id: TodoId


class ReleaseArguments(requests.ReleaseBody, frozen=True, kw_only=True):
    """A claim given back."""

    todo_id: TodoId
