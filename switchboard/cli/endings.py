"""How a command's failures become one line for the operator and the exit code of the shell."""

from __future__ import annotations

from collections.abc import Callable

from switchboard.cli import output
from switchboard.cli.failures import BAD_USAGE, DONE, FAILED, INTERRUPTED, OUTPUT_CLOSED, CommandError, OutputClosed, UsageError
from switchboard.errors import ConfigError


def exit_code_of(command: Callable[[], None]) -> int:
    """Runs a command; returns its exit code. It never raises for what `failures` tells of, or for a wrong configuration."""
    try:
        command()
    except CommandError as exc:
        output.complain(str(exc))
        return FAILED
    except UsageError as exc:
        output.complain(str(exc))
        return BAD_USAGE
    except ConfigError as exc:
        output.complain(*str(exc).splitlines())  # a line for each fault of the configuration
        return BAD_USAGE
    except OutputClosed:
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE
