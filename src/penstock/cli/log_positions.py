"""A position in the log as a person writes it: an offset, a time, a time of day, an age.

    1234                       an offset
    -10m  10m                  an age: so long ago; s, m, h, d
    08:10  08:10:30.5          a time of day, see below
    2026-11-26T08:10  …Z       a time; without a zone in that of this machine
    2026-11-26  today 08:10    yesterday, today: midnight, or with a time of day
    earliest  latest  now

A time of day has no date. As the start of a selection it is its last occurrence, today or
yesterday. As the end it is its first occurrence after the start, so that 23:50 to 00:10 are twenty
minutes; after a start that is an offset, the time of that message counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Literal, TypeAlias

from penstock.errors import ConfigError
from penstock.stream.requests import COUNT_MAX, TIME_US_MAX

_AGE: Final = re.compile(r"-?(\d{1,9}(?:\.\d{1,6})?)([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DAYS: Final = {"today": 0, "yesterday": 1}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The position of the message with an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first message received at or after a time, µs since the Unix epoch."""

    time_us: int


@dataclass(frozen=True, slots=True)
class AtTimeOfDay:
    """A position at a time of day; its date follows from the other end of the selection, or from
    now."""

    time: time


LogEnd: TypeAlias = Literal["earliest", "latest"]
LogPosition: TypeAlias = LogEnd | AtOffset | AtTime | AtTimeOfDay


@dataclass(frozen=True, slots=True)
class Clock:
    """The present time, and the time zone in which times are parsed and shown.

    Attributes:
        now: the present time, with its zone.
        zone: the zone of times without a zone; None: that of this machine, summer time included.
    """

    now: datetime
    zone: tzinfo | None = None

    def local(self, moment: datetime) -> datetime:
        """Return the same time in the time zone of the clock."""
        return moment.astimezone(self.zone)

    def at(self, day: date, hour: time) -> datetime:
        """Return the time at ``hour`` on ``day`` in the zone, in UTC. Times of one zone would be
        compared and subtracted by their clock readings, which is wrong on days when clocks are set
        back."""
        naive = datetime.combine(day, hour)
        local = naive.astimezone() if self.zone is None else naive.replace(tzinfo=self.zone)
        return local.astimezone(UTC)

    def last_occurrence(self, hour: time) -> datetime:
        """Return the last occurrence of a time of day until now, in UTC."""
        today = self.local(self.now).date()
        moment = self.at(today, hour)
        return moment if moment <= self.now.astimezone(UTC) else self.at(today - _DAY, hour)

    def first_occurrence(self, hour: time, after: datetime) -> datetime:
        """Return the first occurrence of a time of day after the time ``after``, in UTC."""
        day = self.local(after).date()
        moment = self.at(day, hour)
        return moment if moment > after else self.at(day + _DAY, hour)


def parse_log_position(option: str, text: str, clock: Clock) -> LogPosition:
    """Parse a position in the log.

    Raises:
        ConfigError: the text is no position; the message names ``option``.
    """
    word = text.strip()
    lower = word.lower()
    if lower in ("earliest", "latest"):
        return "earliest" if lower == "earliest" else "latest"
    if word.isascii() and word.isdecimal() and int(word) <= COUNT_MAX:
        return AtOffset(int(word))
    age = _AGE.fullmatch(lower)
    if age is not None:
        return _ago(option, text, clock, timedelta(seconds=float(age[1]) * _UNITS_S[age[2]]))
    if lower == "now":
        return _ago(option, text, clock, timedelta())
    hour = _parse_time_of_day(word)
    if hour is not None:
        return AtTimeOfDay(hour)
    moment = _parse_day(lower, clock) or _parse_date_and_time(word, clock)
    if moment is None:
        raise ConfigError(
            f"{option} must be an offset (1234), an age (-10m), a time (08:10, 'yesterday 08:10',"
            f" 2026-11-26T08:10), earliest or latest, not {text!r}"
        )
    return AtTime(_checked_us(option, text, moment))


def begin_us(position: AtTime | AtTimeOfDay, clock: Clock) -> int:
    """Return the time at which a selection begins, µs since the Unix epoch."""
    if isinstance(position, AtTime):
        return position.time_us
    return to_us(clock.last_occurrence(position.time))


def end_us(position: AtTime | AtTimeOfDay, clock: Clock, begins_us: int | None) -> int:
    """Return the time before which a selection ends, µs since the Unix epoch.

    Args:
        position: the end of the selection.
        clock: the present time and the zone, for a time of day.
        begins_us: the time at which the selection begins; None if it has no start.
    """
    if isinstance(position, AtTime):
        return position.time_us
    if begins_us is None:
        return to_us(clock.last_occurrence(position.time))
    return to_us(clock.first_occurrence(position.time, from_us(begins_us)))


def to_us(moment: datetime) -> int:
    """Return a time in µs since the Unix epoch."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_us(time_us: int) -> datetime:
    """Return the time that is ``time_us`` µs after the Unix epoch, in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


def local_text(time_us: int, clock: Clock) -> str:
    """Return a time as text, with date and zone, to the millisecond."""
    shown = clock.local(from_us(time_us))
    return f"{shown:%Y-%m-%d %H:%M:%S}.{shown.microsecond // 1000:03d}{shown:%z}"


def _ago(option: str, text: str, clock: Clock, age: timedelta) -> AtTime:
    try:
        moment = clock.now.astimezone(UTC) - age
    except OverflowError:
        moment = datetime.min.replace(tzinfo=UTC)
    return AtTime(_checked_us(option, text, moment))


def _parse_time_of_day(text: str) -> time | None:
    if ":" not in text:  # 0810 is an offset, and T08 hard to read
        return None
    try:
        found = time.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is None else None


def _parse_day(text: str, clock: Clock) -> datetime | None:
    name, _, rest = text.partition(" ")
    if name not in _DAYS:
        return None
    hour = _parse_time_of_day(rest.strip()) if rest.strip() else time()
    if hour is None:
        return None
    return clock.at(clock.local(clock.now).date() - _DAYS[name] * _DAY, hour)


def _parse_date_and_time(text: str, clock: Clock) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is not None:
        return found
    try:
        return clock.at(found.date(), found.time())
    except (OverflowError, ValueError):  # the system knows no such year
        return None


def _checked_us(option: str, text: str, moment: datetime) -> int:
    time_us = to_us(moment)
    if not 0 <= time_us <= TIME_US_MAX:
        raise ConfigError(f"{option} must be from 1970 up to the year 9999, not {text!r}")
    return time_us
