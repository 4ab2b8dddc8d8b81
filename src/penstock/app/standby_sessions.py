"""Prepares the engine's sessions on a standby, so that a takeover need not build them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock.app.composing import prepared_sessions
from penstock.cluster.operations import FAMILIES, Operation
from penstock.config.settings import Settings
from penstock.engine.api import PreparedSessions
from penstock.services.garbage import freezing
from penstock.store.database import Database
from penstock.store.stored_sessions import StoredSessionsMirror

_PREPARED: Final = frozenset({FAMILIES.index("sessions"), FAMILIES.index("subscriptions")})


@final
class StandbySessions:
    """The ``ViewMirror`` of a standby: its sessions and subscriptions, as the engine uses them.

    Args:
        settings: the settings of the broker that the standby may become; a change counts from the
            next view that is opened.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._prepared_for = settings
        self._mirror: StoredSessionsMirror | None = None

    def load_view(self, database: Database) -> None:
        """Prepare all sessions of the view."""
        self._mirror = None
        self._prepared_for = self.settings
        mirror = StoredSessionsMirror(prepared_sessions(self._prepared_for))
        with freezing():
            mirror.load(database)
        self._mirror = mirror

    def apply_changes(self, operations: Sequence[Operation]) -> None:
        """Apply the operations to the prepared sessions."""
        if self._mirror is not None:
            self._mirror.apply(
                [
                    (kind, FAMILIES[family], key, value)
                    for kind, family, key, value in operations
                    if family in _PREPARED
                ]
            )

    def take(self, settings: Settings) -> PreparedSessions | None:
        """Return the prepared sessions and forget them; None if there are none, or they were
        prepared with other settings."""
        mirror, self._mirror = self._mirror, None
        is_for_these = settings == self._prepared_for
        self.settings = settings
        return mirror.prepared if mirror is not None and is_for_these else None
