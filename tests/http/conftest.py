"""What the front door's tests share."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.houses import GENERAL_LANE, House, Opener, no_leftovers
from tests.http.asking import CALM
from tests.http.door import house_log


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the house logs during the test, as a pipe would get it."""
    with house_log() as stream:
        yield stream


@pytest.fixture(scope="module")
def calm_house(open_directory: Path, new_database: Callable[[], str]) -> Iterator[House]:
    """One house for a module, without sweeps: what a back-dated row becomes is a request's doing alone."""
    opener = Opener(open_directory, new_database)
    yield opener(settings=CALM)
    opener.close()
    no_leftovers(opener.directories)


@pytest.fixture(scope="module", params=[{}, GENERAL_LANE], ids=["express", "general"])
def each_lane(request: pytest.FixtureRequest, calm_house: House) -> House:
    """The same, first with clients in the express lane, then with clients in the general one."""
    headers: Mapping[str, str] = request.param
    calm_house.lane_headers = headers
    return calm_house
