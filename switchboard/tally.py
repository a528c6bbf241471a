"""How one adapter is, kept in memory by its poll loop, told to the database once a second and to `/readyz` at any time."""

from __future__ import annotations

import attrs

from switchboard.adapter import AdapterState, Report


@attrs.define(kw_only=True)
class Tally:
    """One adapter's state. Counts are those since the last report; `degraded` is set while it cannot do all of its work."""

    name: str
    state: AdapterState = "backing_off"
    degraded: bool = False
    waiting_for: str | None = None
    last_error: str | None = None
    consecutive_failures: int = 0
    lag: int | None = None
    polled: bool = False
    heard: bool = False
    stored: int = 0
    duplicates: int = 0
    quarantined: int = 0
    lost_at_source: int = 0

    @property
    def broken(self) -> bool:
        """Whether it does less than its operator asked for. One that is switched off does what it was told."""
        return self.degraded or self.state in ("backing_off", "waiting_for_endpoint")

    def take(self) -> Report:
        """The report that is due, its counts taken out of here: `give_back` puts them in again."""
        report = Report(
            name=self.name,
            state=self.state,
            polled=self.polled,
            heard=self.heard,
            last_error=self.waiting_for or self.last_error,
            consecutive_failures=self.consecutive_failures,
            stored=self.stored,
            duplicates=self.duplicates,
            quarantined=self.quarantined,
            lost_at_source=self.lost_at_source,
            lag=self.lag,
        )
        self.polled = self.heard = False
        self.stored = self.duplicates = self.quarantined = self.lost_at_source = 0
        return report

    def give_back(self, report: Report) -> None:
        """Adds the counts of a report that did not arrive."""
        self.polled = self.polled or report.polled
        self.heard = self.heard or report.heard
        self.stored += report.stored
        self.duplicates += report.duplicates
        self.quarantined += report.quarantined
        self.lost_at_source += report.lost_at_source
