"""Merge the command line, the environment and the TOML file into one `Settings`.

    command line  >  environment PENSTOCK_<GROUP>__<NAME>  >  file (--config)  >  defaults

The origin of every value is recorded, so that a mistake is reported where it was made. An
environment variable is a setting only if it has the double underscore (PENSTOCK_COMPILE, which
steers the build, has none); a list or table is written in it as JSON.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from penstock.config.mistakes import mistake_sentences, unknown_setting
from penstock.config.origins import Origins
from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.masking import MASK

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
COMMAND_LINE: Final = "the command line"

Groups = dict[str, dict[str, object]]


def environment_name(group: str, name: str) -> str:
    """Return the environment variable of a setting: PENSTOCK_LIMITS__MAX_INFLIGHT."""
    return f"{ENVIRONMENT_PREFIX}{group}__{name}".upper()


def load_settings(
    config_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Load and validate all settings.

    Args:
        config_file: a TOML file with one table per group, or None.
        overrides: `"group.name"` to value, as given on the command line; None values are left out.
        environ: environment variables; the process's own if None.

    Raises:
        ConfigError: a sentence for each mistake: the setting, its value and what is allowed.
    """
    groups: Groups = {}
    origins = Origins()
    if config_file is not None:
        _add_file(config_file, groups, origins)
    _add_environment(os.environ if environ is None else environ, groups, origins)
    for setting, value in (overrides or {}).items():
        if value is not None:
            group, _, name = setting.partition(".")
            _add(group, name, value, COMMAND_LINE, groups, origins)
    _refuse_masks(groups, origins)
    try:
        settings = Settings.model_validate(groups)
    except ValidationError as error:
        raise ConfigError(mistake_sentences(error, origins)) from None
    if not settings.listener.enabled and origins.location_of("listener", "bind") == COMMAND_LINE:
        raise ConfigError(
            "--bind gives the address of the main listener, which is turned off"
            f" (listener.enabled = false from {origins.of(('listener', 'enabled'))}): leave out"
            " --bind, or set listener.enabled = true"
        )
    return settings


def _refuse_masks(groups: Groups, origins: Origins) -> None:
    """Refuse a secret that `penstock config` has masked: what the command prints has no secrets."""
    for group, settings in groups.items():
        for name, value in settings.items():
            if MASK in str(value):
                raise ConfigError(
                    f"{group}.{name} (from {origins.of((group, name))}) has {MASK} in it, which"
                    " `penstock config` prints instead of a secret: write the secret itself."
                )


def _add(
    group: str, name: str, value: object, origin: str, groups: Groups, origins: Origins
) -> None:
    if group not in Settings.model_fields:
        raise ConfigError(unknown_setting((group, name), origin))
    groups.setdefault(group, {})[name] = value
    origins.add(group, name, origin)


def _add_file(path: Path, groups: Groups, origins: Origins) -> None:
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"The configuration file {path} cannot be read: {reason}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} is not valid TOML: {error}.") from None
    origins.add_file(str(path), text)
    for group, settings in content.items():
        if not isinstance(settings, dict):
            if group in Settings.model_fields:
                raise ConfigError(
                    f"{group} in {path} is {settings!r}, but is a group of settings: write"
                    f" [{group}] and its settings below it."
                )
            raise ConfigError(unknown_setting((group,), origins.with_line_in(str(path), (group,))))
        if group not in Settings.model_fields:
            unknown = (group, *list(settings)[:1])
            raise ConfigError(unknown_setting(unknown, origins.with_line_in(str(path), unknown)))
        for name, value in settings.items():
            _add(group, name, value, str(path), groups, origins)


def _add_environment(environ: Mapping[str, str], groups: Groups, origins: Origins) -> None:
    for variable in sorted(environ):
        setting = variable.removeprefix(ENVIRONMENT_PREFIX)
        if setting == variable:
            continue
        if "__" not in setting:
            _refuse_one_underscore(variable)
            continue
        group, _, name = setting.lower().partition("__")
        value = _environment_value(variable, environ[variable])
        _add(group, name, value, variable, groups, origins)


def _refuse_one_underscore(variable: str) -> None:
    """Refuse a variable that lacks the double underscore: it would be left out without a word."""
    for group, field in Settings.model_fields.items():
        settings = field.annotation
        assert isinstance(settings, type)
        assert issubclass(settings, BaseModel)
        for name in settings.model_fields:
            suggestion = environment_name(group, name)
            if variable == suggestion.replace("__", "_"):
                raise ConfigError(f"{variable} is not a setting; did you mean {suggestion}?")


def _environment_value(variable: str, text: str) -> object:
    """Return the decoded value where the text looks like a JSON list or table; else the text, which
    pydantic converts.

    An address such as `[::1]:1883` starts like a list too, and differs at its end.
    """
    if text[:1] + text[-1:] not in ("[]", "{}"):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{variable} is not valid JSON: {error}.") from None
