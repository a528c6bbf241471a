"""A bad line to a real house: requests go through it, and it can lose answers, refuse, or stop in the middle of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import attrs
import httpx

from tests.houses import PLAIN

Fault = Literal["refuse", "lose", "unavailable", "halt"]
"""refuse: hangs up, and the house hears nothing. lose: the house has done it, and the answer is lost. unavailable: 503 with
Retry-After 1. halt: sends half of the answer, and the rest once it may go on."""
WAIT_SECONDS_MAX = 30.0


@attrs.define(kw_only=True)
class Relay:
    """The line, and what is wrong with it."""

    house: str
    url: str = ""
    faults: dict[str, list[Fault]] = attrs.field(factory=dict)
    """For the last word of a path: what happens to the next requests, one after the other."""
    broken: set[str] = attrs.field(factory=set)
    """Last words of paths that are refused from now on."""
    passed: list[str] = attrs.field(factory=list)
    """The last words of the paths that were asked for."""
    halted: threading.Event = attrs.field(factory=threading.Event)
    may_go_on: threading.Event = attrs.field(factory=threading.Event)
    _news: threading.Condition = attrs.field(factory=threading.Condition)

    def fault(self, word: str) -> Fault | None:
        """What happens to a request that has just come."""
        with self._news:
            self.passed.append(word)
            self._news.notify_all()
            if word in self.broken:
                return "refuse"
            waiting = self.faults.get(word)
            return waiting.pop(0) if waiting else None

    def wait_for(self, word: str, count: int) -> None:
        """Waits until it was asked so often for paths that end with this word."""
        with self._news:
            assert self._news.wait_for(lambda: self.passed.count(word) >= count, WAIT_SECONDS_MAX), self.passed


@contextmanager
def relay_to(house: str) -> Iterator[Relay]:
    """A relay to the house at this address."""
    relay = Relay(house=house)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            fault = relay.fault(self.path.rpartition("/")[2])
            if fault == "refuse":
                self.close_connection = True
                return
            if fault == "unavailable":
                self._answer(503, b'{"code": "unavailable", "detail": "Not now."}', {"Retry-After": "1"})
                return
            kept = {name: value for name, value in self.headers.items() if name.lower() in {"authorization", "content-type"}}
            answer = http.request(self.command, f"{relay.house}{self.path}", content=body, headers=kept)
            if fault == "lose":
                self.close_connection = True
                return
            self._answer(answer.status_code, answer.content, {}, halt=fault == "halt")

        do_GET = do_POST  # noqa: N815 - the standard library's name

        def _answer(self, status: int, body: bytes, headers: dict[str, str], *, halt: bool = False) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            half = len(body) // 2 if halt else len(body)
            self.wfile.write(body[:half])
            if halt:
                relay.halted.set()
                assert relay.may_go_on.wait(WAIT_SECONDS_MAX)
                self.wfile.write(body[half:])

        def log_message(self, *words: object) -> None:
            pass

    with httpx.Client(trust_env=False, verify=PLAIN, timeout=90) as http:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True  # a keep-alive connection ends with its client
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        relay.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
