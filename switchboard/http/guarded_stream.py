"""One client's socket, with a bound on everything that the client can make us wait for.

Hypercorn shields its sends from cancellation, keeps no clock on a slow head, and can leave a task waiting for ever for a
connection that is gone, or for itself. So the clocks, and the word on whether the client is still there, live here, in
the stream that it is given. While no request is running, one deadline hangs over everything that serves the connection,
wherever in the HTTP library it is. The front door looks at these deadlines a few times a second (`look`): a timer for each
would cost more than many a request.

What ends a connection, and what is left to do then:

    gone     the client hung up, its socket failed, or it did not read in time   nobody is left to answer
    ended    our side has said its last word                                     what was sent may still arrive

In both, when no request is running, the connection's tasks are cancelled; a request that is still running has
APPLICATION_SECONDS_MAX to notice.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio

from switchboard.http.hang_ups import HangUps

# The client must take SEND_CHUNK_BYTES in this time: 6 KiB a second. A slower one is cut off.
SEND_SECONDS_MAX = 10.0
SEND_CHUNK_BYTES = 65_536

RECEIVE_BYTES_MAX = 65_536

# A request's head must be complete this long after the connection, or after its first byte on a connection in use.
HEAD_SECONDS_MAX = 10.0

# A connection may wait this long for its next request. Longer than the 60 s at which common proxies let go, so that
# they close first and never send a request into a closing connection.
IDLE_SECONDS_MAX = 75.0

# What is left of these bounds once the house is closing.
CLOSING_SEND_SECONDS_MAX = 1.0
CLOSING_IDLE_SECONDS_MAX = 0.5
CLOSING_LINGER_SECONDS_MAX = 0.25

# After our last word we go on reading for a while: closing a socket with unread bytes in it makes the kernel send a
# reset, and that destroys an answer (a 413, say) which the client has not read yet.
LINGER_SECONDS_MAX = 5.0
LINGER_QUIET_SECONDS_MAX = 1.0

# How long an answer that is being written may go on when the client is gone.
CUT_SECONDS = 0.25

# How often the front door looks at the deadlines of its connections.
LOOK_SECONDS = 0.1

# How long an application may go on with a request whose client is gone, before it is cancelled.
APPLICATION_SECONDS_MAX = 30.0

# tcp_info.tcpi_state, its first byte: the other side has sent its FIN (CLOSE_WAIT), or the connection is no more.
_HUNG_UP_STATES = frozenset({7, 8, 9, 11})


class GuardedStream:
    """A Trio stream over a connected TCP socket, as Hypercorn's connection object takes it.

    `broken`: a send failed or took too long, so an answer may not have arrived. `gone`: nobody is left to answer
    (`broken`, or the client hung up). `scope` is the cancel scope around everything that serves this connection.
    """

    def __init__(self, client: trio.socket.SocketType, *, scope: trio.CancelScope, hang_ups: HangUps) -> None:
        self.socket = client
        self.broken = False
        self.gone = False
        self.http2 = False
        self.requests = 0

        self._unread = b""
        self._scope = scope
        self._hang_ups = hang_ups
        self._ended = False
        self._orderly = False
        self._closing = False
        self._idle_since = trio.current_time()
        # A new connection owes us a head; afterwards the clock runs from a head's first byte.
        self._head_since: float | None = self._idle_since
        # Until when its tasks may go on if nothing happens, and until when the client must take what is being sent.
        self._due = math.inf
        self._send_due = math.inf
        self._sent = trio.lowlevel.ParkingLot()
        self._lingering: trio.CancelScope | None = None
        self._answers: dict[trio.CancelScope, tuple[float, bool]] = {}
        self._set_clock()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes from the client, b"" when it hung up. Raises ClosedResourceError when our side has ended."""
        if self._ended:
            raise trio.ClosedResourceError("our side of the connection has ended")
        if self._unread:
            data, self._unread = self._unread, b""
            await trio.lowlevel.checkpoint()
            return data
        try:
            data = await self.socket.recv(RECEIVE_BYTES_MAX if max_bytes is None else max_bytes)
        except (OSError, trio.ClosedResourceError) as error:
            self._hung_up()
            raise trio.BrokenResourceError("the connection failed") from error
        if not data:
            self._hung_up()
        elif self._head_since is None and not self.requests:
            self._head_since = trio.current_time()
            self._set_clock()
        return data

    def unread(self, data: bytes) -> None:
        """Gives back what was read, for whoever reads next. Its clocks run on."""
        self._unread = data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, each part within its bound.

        Raises BrokenResourceError and marks the stream broken if the client does not take it, or has hung up while a
        request of its own is being answered: bytes for a closed socket vanish, and must not count as delivered (R15).
        """
        if not data:
            return
        if self._ended:
            self._break()
            raise trio.ClosedResourceError("our side of the connection has ended")
        if self.broken or (self.requests and self._peer_hung_up()):
            self._break()
            raise trio.BrokenResourceError("the client is gone")
        sent = False
        try:
            if len(data) <= SEND_CHUNK_BYTES:
                await self._send_chunk(data)
            else:
                with memoryview(data) as view:
                    for start in range(0, len(view), SEND_CHUNK_BYTES):
                        await self._send_chunk(view[start : start + SEND_CHUNK_BYTES])
            sent = True
        finally:
            # Also when a cancellation cuts it short: half an answer is none.
            if not sent:
                self._break()

    async def send_eof(self) -> None:
        """End our side: no more is sent. Hypercorn calls this, and then `aclose`; it acts before a cancellation can."""
        # Cancelled means that the client's time was up: then nothing that it may still send is worth waiting for.
        self._orderly = self._orderly or not self._scope.cancel_called
        self._end()

    async def aclose(self) -> None:
        """As `send_eof`. The socket itself stays until `finish` or `kill`."""
        await self.send_eof()

    def request_began(self, *, http2: bool) -> None:
        """A request's head is in: the clocks stop, its application has its own."""
        self.requests += 1
        self.http2 = self.http2 or http2
        self._head_since = None
        self._set_clock()

    def request_ended(self) -> None:
        """A request is over. With the last one of a dead connection the connection's tasks end too."""
        self.requests -= 1
        self._idle_since = trio.current_time()
        self._set_clock()

    @contextmanager
    def attended(self) -> Iterator[None]:
        """While inside, the client's going ends it (quietly: `gone` says so), although nobody reads."""
        with trio.CancelScope() as scope:

            def hung_up() -> None:
                self._hung_up()
                scope.cancel()

            with self._hang_ups.watching(self.socket.fileno(), hung_up):
                yield

    @contextmanager
    def answering(self, scope: trio.CancelScope, *, seconds: float, http2: bool) -> Iterator[None]:
        """While inside, `scope` ends after `seconds` in which an answer makes no progress.

        HTTP/1.1: each part that the client takes starts the time anew. An HTTP/2 answer has its time once, since the
        others on its connection move too; and it ends soon after the client goes, for it may be waiting for a window
        that nobody will open. Not at once: a client that has its answer and hangs up must not make the answer's last
        step look like a failure.
        """
        scope.deadline = trio.current_time() + seconds
        self._answers[scope] = (seconds, http2)
        try:
            yield
        finally:
            del self._answers[scope]

    async def wait_sent(self, is_sent: Callable[[], bool]) -> None:
        """Wait until `is_sent()`, asked after each send: HTTP/2 answers are written by a task of their own."""
        while not is_sent():
            await self._sent.park()

    def look(self, now: float) -> None:
        """Ends what has had its time: everything that serves an idle connection, or a send that the client does not take."""
        if now >= self._send_due:
            self._send_due = math.inf
            self.kill()
        if now >= self._due:
            self._due = math.inf
            self._scope.cancel()

    def hurry(self) -> None:
        """The house is closing: shorter bounds from now on, and an idle connection ends at once."""
        self._closing = True
        self._send_due = min(self._send_due, trio.current_time() + CLOSING_SEND_SECONDS_MAX)
        if self._lingering is not None:
            self._lingering.deadline = min(self._lingering.deadline, trio.current_time() + CLOSING_LINGER_SECONDS_MAX)
        if not self.requests:
            self._scope.cancel()

    def kill(self) -> None:
        """Close the socket hard, with a reset; whoever waits on it is woken."""
        self._break()
        with suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def abort(self) -> None:
        """Kill, and cancel every request that runs on this connection: the client has forfeited its answers."""
        self.kill()
        self._scope.cancel()

    async def finish(self) -> None:
        """Close the socket when the tasks that used it are gone, first letting the last words arrive. Always closes."""
        try:
            self._end()
            if self._orderly and not self.gone:
                await self._linger()
        finally:
            self.socket.close()

    async def _send_chunk(self, chunk: bytes | bytearray | memoryview) -> None:
        now = trio.current_time()
        self._send_due = now + (CLOSING_SEND_SECONDS_MAX if self._closing else SEND_SECONDS_MAX)
        try:
            sent = await self.socket.send(chunk)
            while sent < len(chunk):
                with memoryview(chunk) as view, view[sent:] as rest:
                    sent += await self.socket.send(rest)
        except (OSError, trio.ClosedResourceError) as error:
            raise trio.BrokenResourceError("the client does not read, or is gone") from error
        finally:
            self._send_due = math.inf
            if self.http2:
                self._sent.unpark_all()
        for scope, (seconds, http2) in self._answers.items():
            if not http2:
                scope.deadline = trio.current_time() + seconds

    async def _linger(self) -> None:
        bound = CLOSING_LINGER_SECONDS_MAX if self._closing else LINGER_SECONDS_MAX
        with trio.CancelScope(deadline=trio.current_time() + bound) as self._lingering:
            while True:
                with trio.move_on_after(LINGER_QUIET_SECONDS_MAX) as quiet:
                    try:
                        more = await self.socket.recv(RECEIVE_BYTES_MAX)
                    except (OSError, trio.ClosedResourceError):
                        return
                if quiet.cancelled_caught or not more:
                    return

    def _set_clock(self) -> None:
        """Until when the connection's tasks may go on, if nothing happens."""
        if self._ended or self.gone:
            if not self.requests:
                self._scope.cancel()
            else:
                self._due = min(self._due, trio.current_time() + APPLICATION_SECONDS_MAX)
        elif self.requests:
            self._due = math.inf
        elif self._closing:
            self._due = self._idle_since + CLOSING_IDLE_SECONDS_MAX
        elif self._head_since is not None and not self.http2:
            self._due = self._head_since + HEAD_SECONDS_MAX
        else:
            self._due = self._idle_since + IDLE_SECONDS_MAX

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self._cut_answers()
        self._set_clock()

    def _hung_up(self) -> None:
        self.gone = True
        self._cut_answers()
        self._set_clock()

    def _break(self) -> None:
        self.broken = True
        self._hung_up()

    def _cut_answers(self) -> None:
        for scope, (_, http2) in self._answers.items():
            if http2:
                scope.deadline = min(scope.deadline, trio.current_time() + CUT_SECONDS)

    def _peer_hung_up(self) -> bool:
        # The reader sees a hang-up at once, unless it has paused for a pipelined request; the kernel always knows.
        try:
            return self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _HUNG_UP_STATES
        except (AttributeError, OSError):
            return False
