"""What the front door's tests share."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from tests.http.door import house_log


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the house logs during the test, as a pipe would get it."""
    with house_log() as stream:
        yield stream
