"""The shell of `penstock sql`: reads statements that end with a semicolon, and commands with a dot.

The history of typed lines is a file that only the user can read, for the arrow keys of later
shells.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import pyarrow as pa

from penstock.cli.screen import print_table
from penstock.cli.sql_statements import SqlOutput, run_statements
from penstock.errors import PenstockError
from penstock.sql.session import SqlSession

HISTORY_LINES_MAX: Final = 1000

_HELP: Final = """\
A statement ends with ; and may have several lines.
  .tables           the views
  .schema [NAME]    their columns
  .explain on|off   print what was read of the log
  .quit             or Ctrl-D
"""


@final
class Shell:
    """Reads statements from a terminal or from standard input, and runs them.

    Args:
        session: the session that runs the statements.
        output: the output for the rows.
        explain: whether to print after each statement what was read of the log.
    """

    def __init__(self, session: SqlSession, output: SqlOutput, *, explain: bool) -> None:
        self._session = session
        self._output = output
        self._explain = explain
        self._is_terminal = sys.stdin.isatty()
        self._failed = False

    def run(self) -> None:
        """Run statements until the end of the input.

        Raises:
            PenstockError: a statement failed, and the input is no terminal.
        """
        if not self._is_terminal:
            run_statements(self._session, sys.stdin.read(), self._output, explain=self._explain)
            return
        print("SQL over the log; .help says more")
        with _history(_history_file()):
            while self._run_next():
                pass

    def _run_next(self) -> bool:
        """Read and run one statement or command; return False at the end of the input."""
        text = ""
        try:
            while not text.rstrip().endswith(";"):
                line = input("sql> " if not text else "...> ")
                if not text and line.strip().startswith("."):
                    return self._run_command(line.split())
                text += f"{line}\n"
                if not text.strip():
                    text = ""
            run_statements(self._session, text, self._output, explain=self._explain)
        except EOFError:
            print()
            return False
        except KeyboardInterrupt:  # while a line is typed
            print()
        except PenstockError as error:
            print(f"penstock: {error}", file=sys.stderr)
        return True

    def _run_command(self, words: list[str]) -> bool:
        """Run a command that begins with a dot; return False if it ends the shell."""
        views = self._session.views
        match words:
            case [".quit" | ".exit"]:
                return False
            case [".tables"]:
                print_table(("view", "shows"), ((view.name, view.about) for view in views.values()))
            case [".schema"]:
                for view in views.values():
                    print_table((view.name, "type"), _columns(view.schema))
            case [".schema", name] if name in views:
                print_table((name, "type"), _columns(views[name].schema))
            case [".schema", name]:
                print(f"there is no view {name}; there are {', '.join(views)}", file=sys.stderr)
            case [".explain", "on" | "off" as state]:
                self._explain = state == "on"
            case _:
                print(_HELP, end="")
        return True


def _columns(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in schema]


def _history_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "penstock" / "sql_history"


@contextlib.contextmanager
def _history(path: Path) -> Iterator[None]:
    """Load the history file, and save it at the end, if this Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES_MAX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a shell works without a history
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(0o600)
            readline.write_history_file(path)
