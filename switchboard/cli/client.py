"""The operator API of a running house, over HTTP: one request, one answer, each within bounds.

The one door to httpx. What goes wrong there becomes one line that says what happened, to whom, and what to do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Final, Self, TypeVar

import attrs
import httpx
import msgspec

from switchboard import VERSION
from switchboard.cli.address import TOKEN_FILE, TOKEN_VARIABLE, House
from switchboard.cli.failures import CommandError
from switchboard.cli.grammar import PROGRAM
from switchboard.cli.replies import Problem

CONNECT_SECONDS_MAX: Final = 5.0
SILENCE_SECONDS_MAX: Final = 30.0  # between two pieces of an answer: longer than the house itself waits for its database
ANSWER_SECONDS_MAX: Final = 60.0  # for a whole answer, however steadily it trickles
ANSWER_BYTES_MAX: Final = 64 * 1_048_576  # a payload and a result at their largest, and room

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Answer:
    """What the house said, and when by its own clock: ages are shown by that, not by the clock of this machine (R13)."""

    url: str
    body: bytes = attrs.field(repr=False)
    now: datetime

    @property
    def text(self) -> str:
        """The JSON as it came. Raises CommandError where it is not even UTF-8."""
        try:
            return self.body.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise self._misunderstood() from exc

    def read(self, shape: type[T]) -> T:
        """The JSON as a value of `shape`. Raises CommandError where it is something else."""
        try:
            return msgspec.json.decode(self.body, type=shape)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
            raise self._misunderstood() from exc

    def _misunderstood(self) -> CommandError:
        return CommandError(
            f"The answer of {self.url} is not what switchboard {VERSION} says: is it a house, and of the same version?"
        )


class OperatorClient:
    """A connection to one house. It is closed by leaving the `with` block."""

    def __init__(self, house: House) -> None:
        self.house = house
        timeout = httpx.Timeout(SILENCE_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        headers = {"user-agent": f"switchboard/{VERSION}", "accept-encoding": "identity"}
        try:
            # The environment's proxies and certificates are for the way out of this machine, not for loopback.
            self._http = httpx.Client(timeout=timeout, headers=headers, trust_env=not house.on_loopback)
        except (ImportError, ValueError, OSError, httpx.InvalidURL):
            # `from None`: the exception may hold a proxy's password.
            raise CommandError(
                "The proxy or the certificates that the environment names cannot be used: "
                "look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, where: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """Asks for what is there; `path` is below `/operator/v1`. Raises CommandError for everything but success."""
        return self._exchange("GET", path, params=params)

    def post(self, path: str, body: str | None = None) -> Answer:
        """Has something done; `body` is JSON text. Raises CommandError for everything but success."""
        return self._exchange("POST", path, body=body)

    def delete(self, path: str) -> Answer:
        """Has something ended. Raises CommandError for everything but success."""
        return self._exchange("DELETE", path)

    def _exchange(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: str | None = None) -> Answer:
        headers = {"authorization": f"Bearer {self.house.token}"}
        if body is not None:
            headers["content-type"] = "application/json"
        content = None if body is None else body.encode("utf-8")
        url = f"{self.house.url}/operator/v1{path}"
        try:
            with self._http.stream(method, url, params=params, content=content, headers=headers) as response:
                read = _read(response)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise CommandError(self._unreached(exc, changes=method != "GET")) from exc
        if not response.is_success:
            raise CommandError(self._refusal(response, read))
        return Answer(url=self.house.url, body=read, now=_house_time(response))

    def _unreached(self, exc: Exception, *, changes: bool) -> str:
        """What to tell where no whole answer came."""
        at = f"{self.house.url} (from {self.house.url_from})"
        if isinstance(exc, httpx.ProxyError):
            return f"The proxy on the way to {at} failed: look at HTTP_PROXY, HTTPS_PROXY and NO_PROXY."
        if isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout):
            reason = f"no connection within {CONNECT_SECONDS_MAX:g} s" if isinstance(exc, httpx.ConnectTimeout) else str(exc)
            reason = reason.rpartition("] ")[2] if reason.startswith("[Errno") else reason
            return (
                f"No house answers at {at}: {reason}. Is it running? Start it with `{PROGRAM} serve`, "
                "or give the right address with --url."
            )
        if isinstance(exc, httpx.InvalidURL | httpx.UnsupportedProtocol):
            return f"The address {at} cannot be used: it looks like http://127.0.0.1:8080."
        what = "did not answer in time" if isinstance(exc, httpx.TimeoutException) else "broke off before it had answered"
        doubt = " It may have done it all the same: look before you repeat it." if changes else ""
        return f"The house at {at} {what}: its log, and {self.house.url}/readyz, say more.{doubt}"

    def _refusal(self, response: httpx.Response, body: bytes) -> str:
        """What to tell where the answer was no."""
        try:
            problem = msgspec.json.decode(body, type=Problem)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return (
                f"{self.house.url} (from {self.house.url_from}) answered {response.status_code}, and not as a house does: "
                "is that its address, or something in front of it?"
            )
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return self._unauthorized(problem)
        detail = problem.detail or "it says no more here; its log does"
        where = f" (field {problem.field})" if problem.field and problem.field not in detail else ""
        wait = response.headers.get("retry-after", "")
        again = f" Try again in {wait} s." if wait.isascii() and wait.isdigit() and len(wait) <= 6 else ""
        return f"{problem.title}: {detail}{where}{again}"

    def _unauthorized(self, problem: Problem) -> str:
        said = f"{problem.title}: the house at {self.house.url} does not take the operator token from {self.house.token_from}."
        if self.house.token.startswith("sbk_"):
            return f"{said} That is an endpoint's credential; an operator token begins with sbo_."
        return (
            f"{said} Its own is in the file {TOKEN_FILE} in its state directory: "
            f"give that with {TOKEN_VARIABLE}, or name the configuration that the house was started with (--config)."
        )


def _read(response: httpx.Response) -> bytes:
    """The body. Raises httpx's own errors where it is too long or takes too long, as for every other failure to read."""
    patience_ends = time.monotonic() + ANSWER_SECONDS_MAX
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            raise httpx.DecodingError(f"over {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > patience_ends:
            raise httpx.ReadTimeout(f"over {ANSWER_SECONDS_MAX} s")
    return bytes(body)


def _house_time(response: httpx.Response) -> datetime:
    try:
        return parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)
