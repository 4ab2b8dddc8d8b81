"""The URL of an HTTP service in a setting."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def check_web_url(
    name: str, url: str, ca_file: str, secret_setting: str, url_setting: str = "url"
) -> None:
    """Check the URL of a service and the settings beside it.

    Args:
        name: name of the group with the URL and with the setting name.ca_file.
        url: the URL of the service.
        ca_file: the file of authorities that sign its certificate, or empty.
        secret_setting: the name of the setting for a password, without its group.
        url_setting: the name of the setting with the URL, without its group.

    Raises:
        ValueError: the service could not be reached so; the message is one sentence.
    """
    parts, setting = urlsplit(url), f"{name}.{url_setting}"
    is_web = parts.scheme in ("http", "https") and not parts.fragment
    if not is_web or not parts.hostname or not _has_port(parts):
        raise ValueError(f"{setting} is {url!r}, but must be http://HOST[:PORT]/PATH or https://…")
    if parts.username is not None:
        raise ValueError(
            f"{setting} must have no user name or password in it: use {name}.{secret_setting}"
        )
    if ca_file and parts.scheme != "https":
        raise ValueError(f"{name}.ca_file is for https://, and {setting} is http://")


def _has_port(parts: SplitResult) -> bool:
    """Return whether the port of a URL is left out, or from 1 to 65535."""
    try:
        return parts.port != 0
    except ValueError:
        return False
