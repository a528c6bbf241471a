"""A house that is nothing but its lock and its embedded server, in a process of its own, to be killed by tests.

Usage: embedded_starter.py STATE_DIR [UID [WHEEL_DIRECTORY]]. Prints one line of JSON, then waits for its stdin to end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from switchboard.database import embedded
from switchboard.database.house_lock import hold
from switchboard.errors import StartError
from switchboard.state_dir import prepare


def main(state_dir: str, uid: str = "", wheel: str = "") -> int:
    if wheel:
        sys.path.insert(0, wheel)
    if uid:
        # After the imports: the interpreter itself may lie where this user cannot reach it.
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    try:
        path = prepare(Path(state_dir))
        with hold(path):
            server = embedded.start(path)
            print(json.dumps({"pid": server.pid, "conninfo": server.conninfo}), flush=True)
            sys.stdin.read()
            server.stop(10)
    except StartError as exc:
        print(json.dumps({"error": str(exc)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
