"""The translation of users and permissions: password files, access lists and anonymous access.

The hashes of passwords are copied (``$7$``, ``$6$``, ``$argon2id$``), so users keep their
passwords. Mosquitto may have several files, one for each listener; Penstock has one password file
and one access list:

* password file: the users of all files; of a name that is in two files, the first line counts.
* access list: the list of the first listener that has one. Lists are not joined, because a user
  would have the grants of all lists: too few grants are safe, too many are not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

from penstock.auth.acl import DENY, AccessList, Rule
from penstock.auth.acl_file import add_line
from penstock.auth.passwords import mistake_in, name_mistake
from penstock.errors import ConfigError
from penstock.mosquitto.broker_options import loads_access_plugin
from penstock.mosquitto.configuration import Configuration, ListenerSection, read_text
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.listeners import TranslatedListeners
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import parse_boolean

USERS_FILE: Final = "users"
ACCESS_LIST_FILE: Final = "acl"

_PASSWORD_FILES: Final = ("password_file", "plugin_opt_password_file")
_ACCESS_LISTS: Final = ("acl_file", "plugin_opt_acl_file")
_ANONYMOUS: Final = ("allow_anonymous", "listener_allow_anonymous")
ACCESS_OPTIONS: Final = frozenset((*_PASSWORD_FILES, *_ACCESS_LISTS, *_ANONYMOUS))


@final
class AccessSettings:
    """The users, the access list, and allow_anonymous of each listener.

    Args:
        configuration: the lines that were read.
        listeners: the listeners that are opened, whose tables get ``allow_anonymous``.
        findings: the findings, to which one for each line is added.
        directory: the directory of the files to write.

    Attributes:
        table: the settings of the group [access].
        users: password line by user name; None without a password file.
        rules: lines of the access list; None without an access list.

    Raises:
        ConfigError: a file cannot be read.
    """

    def __init__(
        self,
        configuration: Configuration,
        listeners: TranslatedListeners,
        findings: Findings,
        directory: Path,
    ) -> None:
        self.table = Table("[access]")
        self.users: dict[str, str] | None = None
        self.rules: list[str] | None = None
        self._configuration = configuration
        self._findings = findings
        self._directory = directory
        for line in self._lines(_PASSWORD_FILES, listeners):
            self._read_users(line)
        lists = self._lines(_ACCESS_LISTS, listeners)
        for number, line in enumerate(lists):
            if number == 0 or line.value == lists[0].value:
                self._read_rules(line)
            else:
                findings.add(
                    MISSING,
                    line,
                    f"There is one access list for all listeners, that of {lists[0].place}: add"
                    " the rules of this one that its users need.",
                )
        self._deny_without_plugin(listeners)
        if listeners.identity is not None:
            part, line = listeners.identity
            self.table.set("identity_from_certificate", part, line)
        self._set_anonymous(listeners)

    def _deny_without_plugin(self, listeners: TranslatedListeners) -> None:
        """Write an access list that grants nothing if only a plugin may have decided on access."""
        lines = self._configuration.general + listeners.general_lines
        plugins = [line for line in lines if loads_access_plugin(line)]
        if self.rules is not None or not plugins:
            return
        self.rules = ["# Nothing is allowed until there are rules: a plugin may have had them."]
        self.table.set("acl_file", str(self._directory / ACCESS_LIST_FILE), plugins[0])
        self._findings.note(
            DIFFERS,
            str(self._configuration.path),
            "a plugin, and no acl_file",
            "The plugin may have decided on permissions, so nothing is allowed: access.acl_file is"
            f" {ACCESS_LIST_FILE}, which is empty. Write the rules there, or remove the setting if"
            " everything was allowed.",
        )

    def _lines(self, options: tuple[str, ...], listeners: TranslatedListeners) -> list[Line]:
        """Return the lines with one of ``options``, each file once; add findings for the others."""
        candidates = self._configuration.general + listeners.general_lines
        lines: list[Line] = []
        files: set[str] = set()
        for line in candidates:
            if line.option in options and line.value not in files:
                files.add(line.value)
                lines.append(line)
            elif line.option in options:
                self._findings.add(SAME, line, "The same file, which all listeners share.")
        return lines

    # -- users -----------------------------------------------------------------------------

    def _read_users(self, line: Line) -> None:
        path = Path(line.value)
        is_first = self.users is None
        users = self.users = self.users or {}
        added = 0
        for number, raw in enumerate(read_text(path, "password file").split("\n"), start=1):
            text = raw.strip("\r \t")
            if not text or text.startswith("#"):
                continue
            name, _, hashed = text.partition(":")
            mistake = name_mistake(name)
            if mistake:
                mistake = f"The user name {mistake}: choose another one."
            elif mistake_in(hashed):
                mistake = f"The text behind the name {mistake_in(hashed)}."
            elif name in users:
                if users[name] == hashed:
                    continue
                mistake = "The name is in an earlier file, whose password counts."
            if mistake:
                self._findings.note(MISSING, f"{path}:{number}", f"user {name}", mistake)
                continue
            users[name] = hashed
            added += 1
        self.table.set("password_file", str(self._directory / USERS_FILE), line)
        self._findings.add(
            TAKEN if is_first else DIFFERS,
            line,
            f"access.password_file: {added} users, each with the same password hash."
            + ("" if is_first else " All listeners let in the users of all files."),
        )

    def _set_anonymous(self, listeners: TranslatedListeners) -> None:
        """Set ``allow_anonymous`` of each listener.

        If Mosquitto let no anonymous client in and had no users, set an empty password file:
        without a password file Penstock checks no user name, and every client would be anonymous.
        """
        is_closed = not listeners.opened_sections  # all listeners are left out
        for section, table in listeners.opened_sections:
            is_anonymous, origin = self._anonymous_access(section)
            if is_anonymous:
                table.set("allow_anonymous", True, origin)
            elif not table.get("require_client_certificate"):
                is_closed = True
            if isinstance(origin, Line) and origin in section.lines:
                self._note_anonymous(origin, is_anonymous)
        general = self._configuration.last("allow_anonymous")
        for line in self._configuration.general:
            if line.option == "allow_anonymous":
                value = parse_boolean(line, self._findings)
                if value is not None:
                    self._note_anonymous(line, value, is_last=line is general)
        if is_closed and self.users is None:
            self.users = {}
            self.table.set(
                "password_file",
                str(self._directory / USERS_FILE),
                "no client is let in without a user name",
            )
            self._findings.note(
                DIFFERS,
                str(self._configuration.path),
                "allow_anonymous false, and no password_file",
                "Clients could log in to Mosquitto through a plugin only, and none can here:"
                f" access.password_file is {USERS_FILE}, which is empty; add users with `penstock"
                " passwd`.",
            )

    def _anonymous_access(self, section: ListenerSection) -> tuple[bool, Line | str]:
        """Return whether the listener lets anonymous clients in, and the origin of the answer."""
        own = [line for line in section.lines if line.option in _ANONYMOUS]
        own.sort(key=lambda line: line.option == "listener_allow_anonymous")
        line = own[-1] if own else self._configuration.last("allow_anonymous")
        if line is None:
            return section.is_local, "Mosquitto without a listener lets all of this machine in"
        return line.value.split()[:1] in (["true"], ["1"]), line

    def _note_anonymous(self, line: Line, value: bool, is_last: bool = True) -> None:
        if not is_last:
            self._findings.add(SAME, line, "A later line replaces this one.")
            return
        self._findings.add(TAKEN, line, f"listener.allow_anonymous = {str(value).lower()}.")

    # -- the access list ---------------------------------------------------------------------

    def _read_rules(self, line: Line) -> None:
        path = Path(line.value)
        checked = AccessList()
        rules: list[Rule] | None = checked.anonymous
        kept_lines: list[str] = []
        count = 0
        for number, raw in enumerate(read_text(path, "access list").split("\n"), start=1):
            text = raw.rstrip("\r\n \t")
            if not text or text.startswith("#"):
                kept_lines.append(text)
                continue
            place = f"{path}:{number}"
            word, _, rest = text.strip(" ").partition(" ")
            is_user = word == "user"
            if rules is None and word == "topic":
                self._findings.note(MISSING, place, text, "The user line above was left out.")
                continue
            try:
                rules = add_line(
                    checked, checked.anonymous if rules is None else rules, place, text.strip(" ")
                )
            except ConfigError as error:
                rules = None if is_user else rules
                self._findings.note(MISSING, place, text, f"The line is left out: {error}")
                continue
            if "\t" in text:
                self._findings.note(
                    DIFFERS,
                    place,
                    text,
                    "In Penstock a tab separates words; in Mosquitto it is part of the filter.",
                )
            if word == "pattern" and rest.split()[:1] == [DENY]:
                self._findings.note(
                    DIFFERS,
                    place,
                    text,
                    "The denial precedes every grant, in Mosquitto only grants of other patterns.",
                )
            kept_lines.append(f"{word} {rest.strip()}")
            count += not is_user
        self.rules = kept_lines
        self.table.set("acl_file", str(self._directory / ACCESS_LIST_FILE), line)
        self._findings.add(
            DIFFERS,
            line,
            f"access.acl_file: {count} rules. A subscription must be granted completely: a client"
            " that subscribes to more than it may read is refused (0x87), where Mosquitto lets it"
            " subscribe and withholds the messages.",
        )
