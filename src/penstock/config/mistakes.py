"""One sentence for each mistake in the settings: the setting, its value and origin, and the allowed
values.

The allowed values are read from the field itself, so a sentence cannot disagree with the check.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from penstock.config.address import ADDRESS_FORM, Address
from penstock.config.origins import Origins
from penstock.config.settings import Settings
from penstock.masking import MASK, is_secret, mask_secrets

_SHOWN_CHARACTERS_MAX: Final = 60

_FOREIGN_NAMES: Final = {
    "port": "listener.bind",
    "host": "listener.bind",
    "address": "listener.bind",
    "certfile": "listener.certificate",
    "keyfile": "listener.key",
    "cafile": "listener.client_ca",
    "crlfile": "listener.crl",
    "max_qos": "listener.maximum_qos",
    "max_qos_allowed": "listener.maximum_qos",
    "mountpoint": "listener.mount_point",
    "use_identity_as_username": "access.identity_from_certificate",
    "use_subject_as_username": "access.identity_from_certificate",
    "max_packet_size": "limits.max_packet_size_bytes",
    "message_size_limit": "limits.max_packet_size_bytes",
    "memory_limit": "memory.budget_bytes",
    "require_certificate": "listener.require_client_certificate",
    "max_connections": "listener.max_connections",
    "max_inflight_messages": "limits.max_inflight",
    "max_queued_messages": "limits.max_mqueue_len",
    "max_queued_bytes": "limits.max_mqueue_bytes",
    "queue_qos0_messages": "limits.mqueue_store_qos0",
    "max_keepalive": "limits.keep_alive_s_max",
    "persistent_client_expiration": "limits.session_expiry_s_max",
    "persistence_location": "durability.data_dir",
    "sys_interval": "status.sys_interval_s",
    "log_type": "log.level",
    "log_dest": "log.file",
}
"""The setting of Penstock by the name that Mosquitto, EMQX or other brokers give it."""


def settings_of(group: str) -> Mapping[str, FieldInfo]:
    """Return the fields of a group by name; empty for an unknown group."""
    field = Settings.model_fields.get(group)
    kind = field.annotation if field is not None else None
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_fields
    return {}


def mistake_sentences(error: ValidationError, origins: Origins) -> str:
    """Return one sentence for every mistake in `error`, a line each."""
    reported = error.errors(include_url=False)
    paths = [mistake["loc"] for mistake in reported]
    # A list with a bad item is reported once more as too short: keep the innermost report.
    mistakes = [mistake for mistake in reported if not _is_prefix(mistake["loc"], paths)]
    sentences = dict.fromkeys(_sentence(mistake, origins) for mistake in mistakes)
    return "\n".join(sentences)


def _sentence(mistake: ErrorDetails, origins: Origins) -> str:
    path = mistake["loc"]
    origin = origins.of(path)
    if mistake["type"] == "extra_forbidden":
        return unknown_setting(path, origin)
    field = _field_at(path)
    is_table = field is not None and get_origin(field.annotation) is dict
    is_rule = mistake["type"] == "value_error" and isinstance(mistake["input"], dict)
    if field is None or (
        is_rule and not is_table
    ):  # about more than one setting: its text is the sentence
        return mistake["msg"].removeprefix("Value error, ") + "."
    location = f" (from {origin})" if origin else ""
    if mistake["type"] == "missing":
        return f"{dotted_path(path)} is missing{location}."
    reason = mistake["msg"].removeprefix("Value error, ")
    if isinstance(path[-1], int) and get_origin(field.annotation) is tuple:  # an item of a list
        field = FieldInfo.from_annotation(get_args(field.annotation)[0])
    expected = reason if mistake["type"] == "value_error" else allowed_values(field)
    value = MASK if is_secret(str(path[-1])) else _shortened(mistake["input"])
    return f"{dotted_path(path)} is {value}{location}, but must be {expected}."


def unknown_setting(path: tuple[int | str, ...], origin: str) -> str:
    """Return the sentence for a setting that does not exist, with the most similar name that
    does."""
    if len(path) > 2:
        return _unknown_in_table(path, origin)
    known = [f"{group}.{name}" for group in Settings.model_fields for name in settings_of(group)]
    own_group = [name for name in known if name.startswith(f"{path[0]}.")]
    written = dotted_path(path)
    location = f" (from {origin})" if origin else ""
    same_name = [name for name in known if name.rpartition(".")[2] == str(path[-1])]
    translated = _FOREIGN_NAMES.get(str(path[-1]))
    close = (
        ([translated] if translated else same_name[:1])
        or difflib.get_close_matches(written, own_group, n=1, cutoff=0.7)
        or difflib.get_close_matches(written, known, n=1, cutoff=0.7)
        or difflib.get_close_matches(written, list(Settings.model_fields), n=1, cutoff=0.7)
    )
    if close:
        return f"{written}{location} is not a setting; did you mean {close[0]}?"
    choices = [name.rpartition(".")[2] for name in own_group] or list(Settings.model_fields)
    where = f"settings of {path[0]}" if own_group else "groups of settings"
    return f"{written}{location} is not a setting; the {where} are {', '.join(choices)}."


def _unknown_in_table(path: tuple[int | str, ...], origin: str) -> str:
    field = _field_at(path[:-1])
    table = _model_in(field.annotation) if field is not None else None
    known = list(table.model_fields) if table is not None else []
    location = f" (from {origin})" if origin else ""
    translated = _FOREIGN_NAMES.get(str(path[-1]), "").rpartition(".")[2]
    close = (
        [translated]
        if translated in known
        else difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.7)
    )
    if close:
        return f"{dotted_path(path)}{location} is not a setting; did you mean {close[0]}?"
    here = dotted_path(path[:-1])
    return (
        f"{dotted_path(path)}{location} is not a setting; those of {here} are {', '.join(known)}."
    )


def allowed_values(field: FieldInfo) -> str:
    """Return the values that a setting may have, in words that follow "must be"."""
    kind = field.annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is Address:
        return ADDRESS_FORM
    if kind is Path:
        return "a path"
    if kind in (int, float):
        return ("a whole number" if kind is int else "a number") + _range(field)
    if get_origin(kind) is dict:
        return "a table"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "a table of settings"
    if get_origin(kind) is tuple:
        return "a list" + _length(field)
    return "text"


def dotted_path(path: tuple[int | str, ...]) -> str:
    """Return a path such as `("stream", "streams", 0, "name")` as `stream.streams[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _range(field: FieldInfo) -> str:
    text = ""
    for bound in field.metadata:
        if isinstance(bound, Ge):
            text += f" from {bound.ge}"
        elif isinstance(bound, Gt):
            text += f" above {bound.gt}"
        elif isinstance(bound, Le):
            text += f" to {bound.le}" if " from " in text else f" up to {bound.le}"
    return text


def _length(field: FieldInfo) -> str:
    bounds = {type(bound): bound for bound in field.metadata}
    low, high = bounds.get(MinLen), bounds.get(MaxLen)
    if isinstance(low, MinLen) and isinstance(high, MaxLen):
        return f" of {low.min_length} to {high.max_length}"
    if isinstance(low, MinLen):
        return f" of at least {low.min_length}"
    return ""


def _field_at(path: tuple[int | str, ...]) -> FieldInfo | None:
    """Return the innermost field on the path of an error; None if the path ends at a group."""
    model: type[BaseModel] | None = Settings
    found: FieldInfo | None = None
    for part in path:
        if isinstance(part, int):
            continue
        if model is not None and part in model.model_fields:
            found = model.model_fields[part]
        elif found is not None and get_origin(found.annotation) is dict:
            found = FieldInfo.from_annotation(get_args(found.annotation)[1])
        else:
            continue
        model = _model_in(found.annotation)
    is_group = found is not None and len(path) < 2
    return None if is_group else found


def _model_in(kind: object) -> type[BaseModel] | None:
    """Return the group of settings inside a type, such as a tuple or dict of it; None without
    one."""
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _is_prefix(path: tuple[int | str, ...], paths: list[tuple[int | str, ...]]) -> bool:
    """Return whether another path goes on where this path ends."""
    return any(len(longer) > len(path) and longer[: len(path)] == path for longer in paths)


def _shortened(value: object) -> str:
    text = mask_secrets(repr(value))
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[: _SHOWN_CHARACTERS_MAX - 1] + "…"
    return text
