"""What it ran on: without that, no number says anything."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from switchboard import VERSION
from switchboard.database.embedded_binaries import carried_programs
from tests.houses import ROOT


def machine() -> dict[str, str]:
    """Cores, memory, and the versions of everything that matters."""
    processor = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    packages = ("trio", "hypercorn", "quart-trio", "psycopg", "redis")
    return {
        "cores": str(os.cpu_count()),
        "processor": processor,
        "memory": f"{memory_bytes / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "PostgreSQL": carried_programs().version,
        "switchboard": f"{VERSION} {commit}".strip(),
        **{package: importlib.metadata.version(package) for package in packages},
    }
