"""The common part of operators' commands."""

import os
import pwd

from penstock.cli.operator_commands import operator_name


def test_the_operator_who_runs_a_command_has_a_name() -> None:
    own = operator_name({})
    assert own == pwd.getpwuid(os.getuid()).pw_name
    assert operator_name({"SUDO_USER": "alice"}) == "alice"
    assert operator_name({"SSH_CONNECTION": "10.1.2.3 50022 10.0.0.1 22"}) == f"{own} at 10.1.2.3"
    assert len(operator_name({"SUDO_USER": "a" * 500})) == 200
