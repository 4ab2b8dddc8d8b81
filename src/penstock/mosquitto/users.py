"""Users and permissions: password files, access lists and anonymous access of Mosquitto.

The hashes come over as they are (``$7$``, ``$6$``, ``$argon2id$``), so users keep their passwords.
Where Mosquitto has several files, one for each listener, Penstock has one of each:

* users: those of all files together; of a name that is in two, the first line counts.
* the access list: that of the first listener that has one. Lists are not joined, because a user
  would have the grants of all: too little is safe, too much is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

from penstock.auth.acl import DENY, AccessList, Rule
from penstock.auth.acl_file import take_line
from penstock.auth.passwords import mistake_in, name_mistake
from penstock.errors import ConfigError
from penstock.mosquitto.broker_options import may_decide
from penstock.mosquitto.configuration import Configuration, ListenerSection, text_of
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.listeners import Listeners
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import truth_of

USERS_FILE: Final = "users"
ACCESS_LIST_FILE: Final = "acl"

_PASSWORD_FILES: Final = ("password_file", "plugin_opt_password_file")
_ACCESS_LISTS: Final = ("acl_file", "plugin_opt_acl_file")
_ANONYMOUS: Final = ("allow_anonymous", "listener_allow_anonymous")
ACCESS_OPTIONS: Final = frozenset((*_PASSWORD_FILES, *_ACCESS_LISTS, *_ANONYMOUS))


@final
class AccessSettings:
    """The users, the access list, and whether clients without a name are let in.

    Args:
        configuration: the lines that were read.
        listeners: the listeners that are opened, whose tables get ``allow_anonymous``.
        findings: the findings, to which those of each line are added.
        directory: the place of the files to write.

    Raises:
        ConfigError: a file cannot be read.
    """

    def __init__(
        self,
        configuration: Configuration,
        listeners: Listeners,
        findings: Findings,
        directory: Path,
    ) -> None:
        self.table = Table("[access]")
        self.users: dict[str, str] | None = None  # name to password line; None for no file
        self.rules: list[str] | None = None  # lines of the access list; None for no file
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
                    " what its users need to it.",
                )
        self._allow_nothing_that_a_plugin_forbade(listeners)
        if listeners.identity is not None:
            part, line = listeners.identity
            self.table.set("identity_from_certificate", part, line)
        self._let_in(listeners)

    def _allow_nothing_that_a_plugin_forbade(self, listeners: Listeners) -> None:
        """Write an access list that grants nothing where only a plugin may have decided access."""
        lines = self._configuration.general + listeners.others
        plugins = [line for line in lines if may_decide(line)]
        if self.rules is not None or not plugins:
            return
        self.rules = ["# Nothing is allowed until there are rules: a plugin may have had them."]
        self.table.set("acl_file", str(self._directory / ACCESS_LIST_FILE), plugins[0])
        self._findings.note(
            DIFFERS,
            str(self._configuration.path),
            "a plugin, and no acl_file",
            "The plugin may have said who may do what, so nothing is allowed: access.acl_file is"
            f" {ACCESS_LIST_FILE}, which is empty. Write the rules there, or take the setting out"
            " where all was allowed.",
        )

    def _lines(self, options: tuple[str, ...], listeners: Listeners) -> list[Line]:
        lines = self._configuration.general + listeners.others
        found = [line for line in lines if line.option in options]
        return [line for at, line in enumerate(found) if not self._is_repeated(found, at)]

    def _is_repeated(self, found: list[Line], at: int) -> bool:
        """Return whether the file of a line was read for an earlier one already, and note it."""
        line = found[at]
        if all(line.value != earlier.value for earlier in found[:at]):
            return False
        self._findings.add(SAME, line, "The same file, which all listeners have.")
        return True

    # -- users -----------------------------------------------------------------------------

    def _read_users(self, line: Line) -> None:
        path = Path(line.value)
        is_first = self.users is None
        users = self.users = self.users or {}
        taken = 0
        for number, raw in enumerate(text_of(path, "password file").split("\n"), start=1):
            text = raw.strip("\r \t")
            if not text or text.startswith("#"):
                continue
            name, _, hashed = text.partition(":")
            mistake = name_mistake(name)
            if mistake:
                mistake = f"The user name {mistake}: choose another one."
            elif mistake_in(hashed):
                mistake = f"What follows the name {mistake_in(hashed)}."
            elif name in users:
                same = users[name] == hashed
                mistake = "" if same else "The name is in an earlier file, whose password counts."
                if same:
                    continue
            if mistake:
                self._findings.note(MISSING, f"{path}:{number}", f"user {name}", mistake)
                continue
            users[name] = hashed
            taken += 1
        self.table.set("password_file", str(self._directory / USERS_FILE), line)
        self._findings.add(
            TAKEN if is_first else DIFFERS,
            line,
            f"access.password_file: {taken} users, each with the hash of the password as it was."
            + ("" if is_first else " All listeners let in the users of all files."),
        )

    def _let_in(self, listeners: Listeners) -> None:
        """Set ``allow_anonymous`` of each listener.

        Where Mosquitto let no anonymous client in and had no users, add a password file without
        any: without one a name proves nothing here, and everybody would be anonymous.
        """
        is_closed = not listeners.opened  # all of them are left out: nobody had come in
        for section, table in listeners.opened:
            is_anonymous, why = self._is_anonymous(section)
            if is_anonymous:
                table.set("allow_anonymous", True, why)
            elif not table.get("require_client_certificate"):
                is_closed = True
            if isinstance(why, Line) and why in section.lines:
                self._note_anonymous(why, is_anonymous)
        general = self._configuration.last("allow_anonymous")
        for line in self._configuration.general:
            if line.option == "allow_anonymous":
                value = truth_of(line, self._findings)
                if value is not None:
                    self._note_anonymous(line, value, is_last=line is general)
        if is_closed and self.users is None:
            self.users = {}
            self.table.set(
                "password_file",
                str(self._directory / USERS_FILE),
                "nobody is let in without a name",
            )
            self._findings.note(
                DIFFERS,
                str(self._configuration.path),
                "allow_anonymous false, and no password_file",
                "Nobody could log in there but through a plugin, and so nobody can here:"
                f" access.password_file is {USERS_FILE}, which is empty; add users with `penstock"
                " passwd`.",
            )

    def _is_anonymous(self, section: ListenerSection) -> tuple[bool, Line | str]:
        own = [line for line in section.lines if line.option in _ANONYMOUS]
        own.sort(key=lambda line: line.option == "listener_allow_anonymous")
        line = own[-1] if own else self._configuration.last("allow_anonymous")
        if line is None:
            return section.is_local, "Mosquitto without a listener lets everyone of this machine in"
        return line.value.split()[:1] in (["true"], ["1"]), line

    def _note_anonymous(self, line: Line, value: bool, is_last: bool = True) -> None:
        if not is_last:
            self._findings.add(SAME, line, "A later line says it again.")
            return
        self._findings.add(TAKEN, line, f"listener.allow_anonymous = {str(value).lower()}.")

    # -- the access list ---------------------------------------------------------------------

    def _read_rules(self, line: Line) -> None:
        path = Path(line.value)
        checked = AccessList()
        rules: list[Rule] | None = checked.anonymous
        kept: list[str] = []
        count = 0
        for number, raw in enumerate(text_of(path, "access list").split("\n"), start=1):
            text = raw.rstrip("\r\n \t")
            if not text or text.startswith("#"):
                kept.append(text)
                continue
            place = f"{path}:{number}"
            word, _, rest = text.strip(" ").partition(" ")
            is_user = word == "user"
            if rules is None and word == "topic":
                self._findings.note(MISSING, place, text, "Its user line was not taken over.")
                continue
            try:
                rules = take_line(
                    checked, checked.anonymous if rules is None else rules, place, text.strip(" ")
                )
            except ConfigError as error:
                rules = None if is_user else rules
                self._findings.note(MISSING, place, text, f"It is left out: {error}")
                continue
            if "\t" in text:
                self._findings.note(
                    DIFFERS,
                    place,
                    text,
                    "A tab separates words here; Mosquitto takes it as part of the filter.",
                )
            if word == "pattern" and rest.split()[:1] == [DENY]:
                self._findings.note(
                    DIFFERS,
                    place,
                    text,
                    "It goes before every grant, in Mosquitto only before those of other patterns.",
                )
            kept.append(f"{word} {rest.strip()}")
            count += not is_user
        self.rules = kept
        self.table.set("acl_file", str(self._directory / ACCESS_LIST_FILE), line)
        self._findings.add(
            DIFFERS,
            line,
            f"access.acl_file: {count} rules. A subscription must be granted whole: a client that"
            " subscribes to more than it may read is refused (0x87), where Mosquitto lets it"
            " subscribe and withholds the messages.",
        )
