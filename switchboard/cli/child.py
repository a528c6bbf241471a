"""One command for one todo: started, fed, listened to within bounds, and ended with everything that it started."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs
import msgspec
import trio

from switchboard.cli.guard import Guard
from switchboard.json_bounds import fault_in
from switchboard.masking import mask

GRACE_SECONDS: Final = 5.0
"""How long a command may take to end after SIGTERM before it is killed."""
LAST_WORDS_SECONDS_MAX: Final = 1.0
"""How long its output is still read once it has ended: somebody who left its process group may hold the other end."""
ERROR_CHARACTERS_MAX: Final = 4_096
_UTF8_BYTES_MAX: Final = 4  # for one character


@attrs.frozen(kw_only=True)
class Ended:
    """How a command ended: with a result, as JSON, or with what to tell as the todo's error."""

    result: msgspec.Raw | None = None
    error: str | None = None


@attrs.define
class _Output:
    """What a command said: at most `kept_max` bytes of it, the first or the last ones, and how many there were."""

    kept_max: int
    last: bool
    kept: bytearray = attrs.field(factory=bytearray)
    length: int = 0

    async def read(self, pipe: trio.abc.ReceiveStream) -> None:
        """Reads to the end, so that nobody is held up by a full pipe."""
        async for piece in pipe:
            self.length += len(piece)
            self.kept += piece if self.last else piece[: max(0, self.kept_max - len(self.kept))]
            if self.last:
                del self.kept[: -self.kept_max]


async def run(words: Sequence[str], todo: bytes, *, result_bytes_max: int, guard: Guard) -> Ended:
    """Runs a command to its end, with `todo` and a newline on its standard input.

    Cancelled, it ends the command first: SIGTERM to its process group, SIGKILL after GRACE_SECONDS. Nothing that the command
    has started in its process group outlives it.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(words),
            stdin=-1,
            stdout=-1,
            stderr=-1,
            start_new_session=True,  # a process group of its own, to be ended as a whole
            preexec_fn=guard.announcing(),
        )
    except OSError as exc:
        return Ended(error=f"The command {words[0]!a} cannot be started: {exc.strerror}.")
    stdout = _Output(result_bytes_max, last=False)
    stderr = _Output(ERROR_CHARACTERS_MAX * _UTF8_BYTES_MAX, last=True)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes, as asked for
    try:
        async with process.stdin, process.stdout, process.stderr, trio.open_nursery() as nursery:
            nursery.start_soon(_feed, process.stdin, todo + b"\n")
            nursery.start_soon(stdout.read, process.stdout)
            nursery.start_soon(stderr.read, process.stderr)
            await process.wait()
            _signal_group(process.pid, signal.SIGKILL)
            nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS_SECONDS_MAX
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)
        guard.forget(process.pid)
    return _ended(process.returncode or 0, stdout, stderr)


async def _feed(pipe: trio.abc.SendStream, todo: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # a command need not read its todo
        await pipe.send_all(todo)
    await pipe.aclose()


async def _end(process: trio.Process) -> None:
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with trio.move_on_after(GRACE_SECONDS):
            await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _ended(code: int, stdout: _Output, stderr: _Output) -> Ended:
    if code != 0:
        said = bytes(stderr.kept).decode("utf-8", "replace").replace("\0", "\ufffd")[-ERROR_CHARACTERS_MAX:].strip()
        how = f"The command ended with exit code {code}." if code > 0 else f"The command was ended by {_signal_name(-code)}."
        return Ended(error=mask(f"{said}\n{how}".strip() if code < 0 or not said else said))
    text = bytes(stdout.kept)
    if fault_in(text) is not None:  # what is no JSON that a house can keep is kept as the text that it is
        text = json.dumps(text.decode("utf-8", "replace").replace("\0", "\ufffd"), ensure_ascii=False).encode()
    if stdout.length > stdout.kept_max or len(text.strip()) > stdout.kept_max:
        return Ended(
            error=f"The command's output is too large to be the result: {stdout.length} bytes, "
            f"and the house takes {stdout.kept_max} as JSON."
        )
    return Ended(result=msgspec.Raw(text))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
