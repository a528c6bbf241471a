"""What the express lane takes: one plain spelling of a request, read as every other reader reads it, and nothing else."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.http.bodies import LARGE_BODY_BYTES
from switchboard.http.express_framing import HEAD_BYTES_MAX, Head, read_head

PLAIN = b"POST /v1/todos HTTP/1.1\r\nHost: house:80\r\nAuthorization: Bearer sbk_x\r\nContent-Length: 2\r\n\r\n"


def with_line(line: bytes) -> bytes:
    """The plain request, with one more header line."""
    return PLAIN.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")


def test_a_plain_request_is_taken() -> None:
    """Its path, its headers by their names in small letters, its length; the body after it is not looked at."""
    head = read_head(PLAIN + b"{}POST /v1/claims")
    assert isinstance(head, Head)
    assert (head.path, head.size_bytes, head.content_length, head.keep_alive) == ("/v1/todos", len(PLAIN), 2, True)
    assert head.headers == {"host": "house:80", "authorization": "Bearer sbk_x", "content-length": "2"}


@pytest.mark.parametrize(
    ("line", "keep_alive"),
    [(b"connection: keep-alive", True), (b"Connection: Keep-Alive", True), (b"CONNECTION:close", False), (b"a: b  c", True)],
)
def test_plain_lines_are_taken(line: bytes, keep_alive: bool) -> None:
    """Connection in its two plain words; any case; with or without the one space."""
    head = read_head(with_line(line))
    assert isinstance(head, Head)
    assert head.keep_alive is keep_alive


def test_a_request_without_a_body_needs_no_length() -> None:
    """As an agent's retry."""
    head = read_head(b"POST /v1/todos/a-1/retry HTTP/1.1\r\nhost: h\r\n\r\n")
    assert isinstance(head, Head)
    assert head.content_length == 0


@pytest.mark.parametrize("size", range(len(PLAIN)))
def test_a_beginning_waits_for_more(size: int) -> None:
    """However it is cut."""
    assert read_head(PLAIN[:size]) == "more"
    assert read_head(bytearray(PLAIN[:size])) == "more"


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/todos",
        b"P\x00",
        b"post /v1",
        b"\r\nPOST /v1/",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /operator/v1/todos",
        b"POST http://house/v1/todos",
        b"\x16\x03\x01",
        b"POST /v1/" + b"a" * HEAD_BYTES_MAX,
    ],
)
def test_what_cannot_become_ours_is_handed_over_at_once(data: bytes) -> None:
    """Nobody waits for the end of a head that is another lane's, and a head has its bound."""
    assert read_head(data) == "hand over"


@pytest.mark.parametrize(
    "line",
    [
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: identity",
        b"content-length: 2",
        b"content-length: 3",
        b"host: other",
        b"authorization: Bearer sbk_y",
        b"expect: 100-continue",
        b"upgrade: h2c",
        b"te: trailers",
        b"trailer: x",
        b"http2-settings: AAAA",
        b"connection: keep-alive, te",
        b"connection: upgrade",
        b"connection: ",
        b"x : y",
        b": y",
        b"x",
        b"x: y\r\n z",
        b"x: a\x00b",
        b"x: a\rb",
        b"x: a\nb: c",
        b"x: \xff",
        b"x\xff: y",
        b"x: a\tb",
        b"x: y ",
        b"x:  y",
        b"x: " + b"y" * HEAD_BYTES_MAX,
        b"\r\n".join(b"x%d: y" % number for number in range(101)),
    ],
)
def test_what_is_spelled_otherwise_is_handed_over(line: bytes) -> None:
    """Conflicting or doubled lengths, odd framing, bare CR and LF, folded lines, doubled headers, what asks for more."""
    assert read_head(with_line(line)) == "hand over"


@pytest.mark.parametrize(
    "length", [b"-1", b"+2", b"0x2", b"2, 2", b"2 2", b"", b"\xb2", b"99999999999", b"%d" % (LARGE_BODY_BYTES + 1)]
)
def test_odd_and_large_lengths_are_handed_over(length: bytes) -> None:
    """Also what is no number to the one and a number to the other."""
    assert read_head(PLAIN.replace(b": 2\r", b": " + length + b"\r")) == "hand over"


@pytest.mark.parametrize(
    "line", [b"", b"Host: \r\n", b"Host: a..b\r\n", b"Host: [\r\n", b"Host: a b\r\n", b"Host: a:notaport\r\n"]
)
def test_a_host_that_is_none_is_handed_over(line: bytes) -> None:
    """The general lane has the words for it."""
    assert read_head(PLAIN.replace(b"Host: house:80\r\n", line)) == "hand over"


@pytest.mark.parametrize(
    "start",
    [
        b"POST /v1/todos?x=1 HTTP/1.1",
        b"POST /v1/todos%2f HTTP/1.1",
        b"POST /v1/todos# HTTP/1.1",
        b"POST /v1/todos HTTP/1.0",
        b"POST /v1/todos HTTP/1.10",
        b"POST /v1/todos  HTTP/1.1",
        b"POST /v1/todos HTTP/1.1 ",
        b"POST /v1/../operator HTTP/1.1",
        b"POST /v1/" + b"a" * 200 + b" HTTP/1.1",
        b"POST /v1/todos\x00 HTTP/1.1",
    ],
)
def test_other_lines_are_handed_over(start: bytes) -> None:
    """A query, an escape, another version, another space, a path that is none of ours."""
    assert read_head(PLAIN.replace(b"POST /v1/todos HTTP/1.1", start)) == "hand over"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n"])
def test_other_ends_of_lines_never_make_a_head(end: bytes) -> None:
    """Neither where all lines end so nor where one does."""
    assert not isinstance(read_head(PLAIN.replace(b"\r\n", end)), Head)
    assert read_head(PLAIN.replace(b"80\r\n", b"80" + end)) == "hand over"


_ODD = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b",",
        b"\x00",
        b"\xff",
        b"0",
        b"content-length: 1\r\n",
        b"te: x\r\n",
        b"a: b\r\n",
        b";",
    ]
)


@given(st.lists(st.tuples(st.integers(0, len(PLAIN)), st.integers(0, 3), _ODD), min_size=1, max_size=4))
def test_what_is_taken_reads_the_same_to_another_parser(changes: list[tuple[int, int, bytes]]) -> None:
    """Whatever is done to a plain request: it is not taken, or h11 reads in it the same request, of the same length."""
    odd = PLAIN
    for place, cut, put in changes:
        odd = odd[:place] + put + odd[place + cut :]
    head = read_head(odd)
    if not isinstance(head, Head):
        return
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(odd)
    request = reader.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (b"POST", head.path.encode())
    assert dict(request.headers) == {name.encode(): value.encode() for name, value in head.headers.items()}
    body = odd[head.size_bytes :]
    reader.receive_data(b"" if len(body) >= head.content_length else b"x" * (head.content_length - len(body)))
    read = b""
    while isinstance(event := reader.next_event(), h11.Data):
        read += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert len(read) == head.content_length
