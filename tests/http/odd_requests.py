"""What strangers send to a port: an endless stream of odd bytes, the same for the same dice, and a way to throw them.

For the front door alone and for the whole house: `targets` and `headers` bring the requests to real routes.
"""

from __future__ import annotations

import base64
import random
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import h2.connection
import trio

# How long a thrower listens for an answer that may never come. Some odd requests are the beginning of a good one.
LISTEN_SECONDS = 0.05

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

METHODS = (b"GET", b"POST", b"HEAD", b"OPTIONS", b"CONNECT", b"TRACE", b"PUT", b"G\x00T", b"get", b"", b" ", b"M" * 300)
TARGETS = (
    b"*", b"//", b"//x", b"/%", b"/%zz", b"/%00", b"/%ff%fe", b"/\xff\xfe", b"?", b"?x", b"#", b"x", b"..", b"/../../etc",
    b"http://house/", b"http://[bad/", b"http://", b"https://house:99999/", b"house:80", b"[::1]:80", b"/" + b"a" * 9_000,
    b"/?" + b"q=%00&" * 500, b"/\x00", b"/ /", b"/\t", b"/\x7f", b"/%ed%a0%80", "/\N{SNOWMAN}".encode(), b"ftp://x/", b"",
)  # fmt: skip
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.10", b"HTTP/-1", b"http/1.1", b"HTTP/1.1 ", b"", b"X")
HEADERS = (
    b"host: house", b"host:", b"host: a\r\nhost: b", b"host: \xff\xfe", b"host: [", b"host: a..b", b"host: " + b"x" * 300,
    b"host: house:notaport", b"connection: close", b"connection: keep-alive, upgrade", b"connection: \xff",
    b"expect: 100-continue", b"expect: 200-maybe", b"te: trailers", b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked", b"transfer-encoding: chunked, chunked", b"transfer-encoding: identity",
    b"content-length: 5", b"content-length: -1", b"content-length: 5, 5", b"content-length: 5\r\ncontent-length: 6",
    b"content-length: 99999999999999999999", b"content-length: 0x5", b"content-length: +5", b"content-length: \xb2",
    b"content-encoding: gzip", b"content-type: application/json", b"content-type: application/json; charset=utf-16",
    b"content-type: multipart/form-data; boundary=", b"content-type: \xff", b"content-type: ;=;", b"cookie: =;=;;a=\xff",
    b"cookie: " + b"a=b;" * 500, b"accept: */*;q=nan", b"authorization: Bearer", b"authorization: \xff", b"range: bytes=9-1",
    b"if-modified-since: yesterday", b"x: y\r\n z", b"x : y", b": y", b"x", b"\x00: \x00", b"x: a\x00b", b"x: " + b"y" * 40_000,
    b"x-forwarded-for: ::::", b"x-forwarded-proto: \xff", b"upgrade: h2c", b"http2-settings: AAAA", b"accept-encoding: \x01",
    b"access-control-request-headers: *", b"sec-websocket-key: x", b"content-length:", b"transfer-encoding:",
)  # fmt: skip
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"-1\r\nx\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"5\r\nhel",
    b"5;ext=\xff\r\nhello\r\n0\r\n\r\n", b"zz\r\nhello\r\n", b"0\r\n", b"0\r\nx: y\r\n\r\n", b"0\r\nbad trailer\r\n\r\n",
    b"5\r\nhelloX\r\n0\r\n\r\n", b"00000000000000000005\r\nhello\r\n0\r\n\r\n", b"1\r\na\r\n" * 300 + b"0\r\n\r\n",
    b" 5\r\nhello\r\n0\r\n\r\n", b"\r\n\r\n", b"5" * 40_000,
)  # fmt: skip
BODIES = (
    b"", b"hello", b"{}", b'{"queue":"a"}', b"\xff\xfe{\x00}\x00", b"[" * 5_000, b"\x1f\x8b\x08\x00junk", b"NaN", b"1" * 6_000,
    b"\xef\xbb\xbf{}", b'{"a":"\\ud800"}', b"--\r\n\r\n--", b"x" * 70_000,
)  # fmt: skip
TLS_HELLO = bytes.fromhex(
    "16030100f1010000ed0303a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9020000102030405060708090a0b0c0d0e"
    "0f101112131415161718191a1b1c1d1e1f00081302130313011302010000"
) + bytes(140)


def odd_requests(
    dice: random.Random, *, targets: Sequence[bytes] = (b"/", b"/echo", b"/nowhere"), headers: bytes = b""
) -> Iterator[bytes]:
    """Endless odd bytes for one connection each. `headers` are whole lines, e.g. a credential, for the better ones."""
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: dice.randbytes(dice.randrange(1, 400)),
        lambda: _mutated(dice, _request(dice, targets, headers)),
        lambda: _mutated(dice, _request(dice, targets, headers)),
        lambda: _odd_line(dice, targets, headers),
        lambda: _odd_headers(dice, targets),
        lambda: _odd_headers(dice, targets),
        lambda: _odd_body(dice, targets, headers),
        lambda: _odd_body(dice, targets, headers),
        lambda: _websocket(dice, targets),
        lambda: _websocket(dice, targets),
        lambda: _http2(dice, targets),
        lambda: _http2(dice, targets),
        lambda: _h2c(dice, targets),
        lambda: _truncated(dice, _request(dice, targets, headers)),
        lambda: _truncated(dice, TLS_HELLO),
        lambda: _request(dice, targets, headers) + dice.choice((b"\r\n", b"\x00", dice.randbytes(50), b"GARBAGE\r\n\r\n")),
        lambda: _request(dice, targets, headers) * dice.randrange(2, 30),
        lambda: _request(dice, targets, headers).replace(b"\r\n", dice.choice((b"\n", b"\r", b"\r\n\r\n", b"\r\r\n"))),
    )
    while True:
        yield dice.choice(kinds)()


async def throw(port: int, data: bytes, dice: random.Random) -> bytes:
    """Send `data` whole or in pieces, then listen a little, half-close, or reset. What came back."""
    manner, pieces = dice.random(), dice.random()
    answer = b""
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return answer
    async with stream:
        # Whatever the server does to this connection is its right; the question is whether others notice.
        with suppress(trio.BrokenResourceError), trio.move_on_after(2):
            if pieces < 0.3 and len(data) > 1:
                cut = dice.randrange(1, len(data))
                await stream.send_all(data[:cut])
                await trio.lowlevel.checkpoint()
                await stream.send_all(data[cut:])
            else:
                await stream.send_all(data)
            if manner < 0.15:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return answer
            if manner < 0.3:
                await stream.send_eof()
            with trio.move_on_after(LISTEN_SECONDS):
                while more := await stream.receive_some():
                    answer += more
    return answer


def _request(dice: random.Random, targets: Sequence[bytes], headers: bytes) -> bytes:
    """A good request."""
    if dice.random() < 0.5:
        return b"GET " + dice.choice(targets) + b" HTTP/1.1\r\nhost: house\r\n" + headers + b"\r\n"
    body = dice.choice(BODIES)
    length = b"content-length: %d\r\ncontent-type: application/json\r\n" % len(body)
    return b"POST " + dice.choice(targets) + b" HTTP/1.1\r\nhost: house\r\n" + headers + length + b"\r\n" + body


def _mutated(dice: random.Random, data: bytes) -> bytes:
    """Some of its bytes changed, cut out, doubled or put in."""
    odd = bytearray(data)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(odd)) if odd else 0
        what = dice.randrange(4)
        if what == 0 and odd:
            odd[at] = dice.randrange(256)
        elif what == 1:
            del odd[at : at + dice.randrange(1, 10)]
        elif what == 2:
            odd[at:at] = odd[at : at + dice.randrange(1, 40)]
        else:
            odd[at:at] = dice.choice((b"\x00", b"\r", b"\n", b"\r\n", b" ", b"\xff", b":", b"%", dice.randbytes(3)))
    return bytes(odd)


def _odd_line(dice: random.Random, targets: Sequence[bytes], headers: bytes) -> bytes:
    target = dice.choice((*TARGETS, *targets))
    line = dice.choice(METHODS) + b" " + target + b" " + dice.choice(VERSIONS)
    return line + b"\r\nhost: house\r\n" + headers + b"\r\n"


def _odd_headers(dice: random.Random, targets: Sequence[bytes]) -> bytes:
    lines = [dice.choice(HEADERS) for _ in range(dice.randrange(1, 6))]
    if dice.random() < 0.1:
        lines *= 100
    start = dice.choice((b"GET ", b"POST ")) + dice.choice(targets) + b" HTTP/1.1"
    return b"\r\n".join([start, *lines, b"", dice.choice(BODIES)])


def _odd_body(dice: random.Random, targets: Sequence[bytes], headers: bytes) -> bytes:
    framing = dice.choice(
        (
            b"transfer-encoding: chunked\r\n",
            b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
            b"transfer-encoding: chunked\r\nexpect: 100-continue\r\n",
            b"content-length: %d\r\n" % dice.choice((0, 3, 5, 500, 10**12)),
        )
    )
    head = b"POST " + dice.choice(targets) + b" HTTP/1.1\r\nhost: house\r\ncontent-type: application/json\r\n" + headers
    return head + framing + b"\r\n" + dice.choice(CHUNKS + BODIES) + dice.choice((b"", b"GET / HTTP/1.1\r\n\r\n"))


def _websocket(dice: random.Random, targets: Sequence[bytes]) -> bytes:
    key = dice.choice((b"dGhlIHNhbXBsZSBub25jZQ==", b"", b"x", b"\xff", b"A" * 999))
    lines = [
        b"GET " + dice.choice((*targets, b"?x", b"*")) + dice.choice((b" HTTP/1.1", b" HTTP/1.1", b" HTTP/1.0")),
        b"host: house",
        b"connection: " + dice.choice((b"upgrade", b"Upgrade, keep-alive", b"close, upgrade")),
        b"upgrade: " + dice.choice((b"websocket", b"WebSocket", b"websocket, h2c")),
        *([b"sec-websocket-key: " + key] if dice.random() < 0.8 else []),
        b"sec-websocket-version: " + dice.choice((b"13", b"13", b"13", b"8", b"x", b"")),
        *dice.sample(
            (
                b"sec-websocket-protocol: ,,",
                b"sec-websocket-extensions: permessage-deflate; x=\xff",
                b"sec-websocket-extensions: ;",
                b"content-length: 5",
                b"transfer-encoding: chunked",
                b"sec-websocket-protocol: \xff",
            ),
            dice.randrange(3),
        ),
    ]
    extra = dice.choice(
        (b"", b"x", b"\x81\x05hello", b"\x81\x85\x00\x00\x00\x00hello", b"\xff" * 200, b"\x88\x80\x00\x00\x00\x00")
    )
    return b"\r\n".join([*lines, b"", extra])


def _http2(dice: random.Random, targets: Sequence[bytes]) -> bytes:
    """Prior knowledge: the preface, then good frames, mutated frames, made-up frames or noise."""
    what = dice.randrange(6)
    if what == 0:
        return PREFACE + dice.randbytes(dice.randrange(200))
    if what == 1:
        return PREFACE + b"".join(_frame(dice) for _ in range(dice.randrange(1, 12)))
    data = _conversation(dice, targets)
    if what == 2:
        return _truncated(dice, data)
    if what == 3:
        return PREFACE + _mutated(dice, data[len(PREFACE) :])
    if what == 4:
        return data + b"".join(_frame(dice) for _ in range(dice.randrange(1, 6)))
    return data + b"".join(
        _frame(dice, kind=kind, stream=1) for kind in dice.choices((0, 1, 2, 3, 6, 8, 9), k=dice.randrange(1, 5))
    )


def _conversation(dice: random.Random, targets: Sequence[bytes]) -> bytes:
    """What a client of ours would say, with heads that no good client has."""
    peer = h2.connection.H2Connection(
        h2.config.H2Configuration(header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False)
    )
    peer.initiate_connection()
    for _ in range(dice.randrange(1, 4)):
        stream_id = peer.get_next_available_stream_id()
        head = [
            (b":method", dice.choice((b"GET", b"POST", b"CONNECT", b"\xff", b""))),
            (b":path", dice.choice((*targets, *TARGETS))),
            (b":scheme", dice.choice((b"http", b"https", b"\xff"))),
            (b":authority", dice.choice((b"house", b"", b"\xff", b"a..b"))),
        ]
        if dice.random() < 0.4:
            del head[dice.randrange(4)]
        if dice.random() < 0.5:
            head.append(
                dice.choice(((b"x", b"\xff"), (b":odd", b"x"), (b"content-length", b"-1"), (b":protocol", b"websocket")))
            )
        ends = dice.random() < 0.5
        peer.send_headers(stream_id, head, end_stream=ends)
        if not ends:
            peer.send_data(stream_id, dice.choice(BODIES)[:16_000], end_stream=dice.random() < 0.5)
        if dice.random() < 0.3:
            peer.reset_stream(stream_id)
    return bytes(peer.data_to_send())


def _frame(dice: random.Random, *, kind: int | None = None, stream: int | None = None) -> bytes:
    payload = dice.randbytes(dice.choice((0, 1, 4, 5, 8, 30)))
    head = struct.pack(
        ">IBI",
        dice.choice((len(payload), len(payload), len(payload), dice.randrange(20_000))) << 8
        | (dice.randrange(12) if kind is None else kind),
        dice.choice((0, 1, 4, 5, 8, 0x20, 0xFF)),
        dice.choice((0, 1, 1, 2, 3, 5, 2**31 - 1, 2**32 - 1)) if stream is None else stream,
    )
    return head + payload


def _h2c(dice: random.Random, targets: Sequence[bytes]) -> bytes:
    settings = dice.choice(
        (
            b"",
            b"AAMAAABkAAQAAP__",
            b"!!!",
            b"A",
            b"\xff\xff",
            base64.urlsafe_b64encode(dice.randbytes(12)),
            b"AAMAAABkAAQAAP__" * 99,
        )
    )
    lines = [
        dice.choice((b"GET ", b"OPTIONS ", b"CONNECT ")) + dice.choice((*targets, b"*", b"x")) + b" HTTP/1.1",
        b"host: " + dice.choice((b"house", b"\xff", b"")),
        b"connection: upgrade, http2-settings",
        b"upgrade: " + dice.choice((b"h2c", b"H2C", b" h2c ")),
        *([b"http2-settings: " + settings] if dice.random() < 0.9 else []),
        *([b"x: \xff"] if dice.random() < 0.2 else []),
    ]
    after = dice.choice((b"", PREFACE, PREFACE + _frame(dice), dice.randbytes(40), _conversation(dice, targets)))
    return b"\r\n".join([*lines, b"", after])


def _truncated(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(1, len(data) + 1)]
