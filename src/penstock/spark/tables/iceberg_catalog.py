"""Opens the catalog of Iceberg tables, with an end to each wait for its answer.

pyiceberg asks a REST catalog without a limit of time, and gives the drivers of databases none. A
catalog that accepts a connection and says nothing would stop a job until somebody ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast, final

from pyiceberg.catalog import Catalog, CatalogType, infer_catalog_type, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import Config, merge_config
from requests import Session
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from penstock.config.object_store import ObjectStoreSettings
from penstock.config.table import IcebergNames
from penstock.spark.tables.iceberg_io import SETTINGS, TableFileIO

CATALOG_TIMEOUT_S: Final = 30.0
"""How long a catalog of tables on a disk may take to answer; for tables in an object store it is
`tables.object_store.timeout_s`."""

_ATTEMPTS_MAX: Final = 10
_TIMEOUT: Final = "penstock-catalog-timeout-s"
_SQLITE_LOCK_S: Final = 60


def _of_libpq(timeout_s: float) -> Mapping[str, float]:
    """Return the parameters with which a server that is gone, or does not greet, is noticed within
    twice this time."""
    return {
        "connect_timeout": max(2, timeout_s),
        "tcp_user_timeout": 1000 * timeout_s,
        "keepalives_idle": max(1, timeout_s / 2),
        "keepalives_interval": max(1, timeout_s / 6),
        "keepalives_count": 3,
    }


def _of_mysql(timeout_s: float) -> Mapping[str, float]:
    return {"connect_timeout": timeout_s, "read_timeout": timeout_s, "write_timeout": timeout_s}


_LIMITS: Final[Mapping[str, Callable[[float], Mapping[str, float]]]] = {
    "psycopg": _of_libpq,
    "psycopg2": _of_libpq,
    "pymysql": _of_mysql,
    "mysqldb": _of_mysql,
}
"""The parameters of time of drivers that know some, by the driver's name."""


def open_catalog(
    names: IcebergNames, path: Path | None, settings: ObjectStoreSettings | None
) -> Catalog:
    """Return the catalog of tables.

    Args:
        names: its name, and the properties by which pyiceberg opens it.
        path: the SQLite file that is the catalog where there are no properties; it is made.
        settings: how the object store of the tables is reached; None for tables on a disk.
    """
    options = dict(names.properties)
    if not options:
        assert path is not None, "IcebergTable has refused that"
        path.parent.mkdir(parents=True, exist_ok=True)
        options = {
            "type": "sql",
            "uri": f"sqlite:///{path}?timeout={_SQLITE_LOCK_S}",
            "warehouse": str(path.parent),
        }
    options["py-io-impl"] = f"{TableFileIO.__module__}.{TableFileIO.__qualname__}"
    if settings is not None:
        options[SETTINGS] = settings.model_dump_json()
    timeout_s = CATALOG_TIMEOUT_S if settings is None else settings.timeout_s
    deadline_s = time.monotonic() + timeout_s
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return _open(names.catalog, options, timeout_s)
        except SQLAlchemyError:  # another job creates the catalog now: open it again
            if time.monotonic() > deadline_s:
                raise
    return _open(names.catalog, options, timeout_s)


def _open(name: str, options: dict[str, str], timeout_s: float) -> Catalog:
    if "py-catalog-impl" in options:
        return load_catalog(name, **options)
    known = merge_config(Config().get_catalog_config(name) or {}, cast(RecursiveDict, options))
    given = known.get("type")
    kind = CatalogType(str(given).lower()) if given else infer_catalog_type(name, known)
    if kind is CatalogType.REST:
        return _RestCatalog(name, **cast(dict[str, str], known | {_TIMEOUT: str(timeout_s)}))
    if kind is CatalogType.SQL:
        options = options | {"uri": with_limits(str(known["uri"]), timeout_s)}
    return load_catalog(name, **options)


def with_limits(uri: str, timeout_s: float) -> str:
    """Return the URI of a database with the limits of time that its driver knows, unless it has
    them."""
    url = make_url(uri)
    find = _LIMITS.get(url.drivername.partition("+")[2] or url.get_driver_name())
    if find is None:
        return uri
    found = {key: str(int(value)) for key, value in find(timeout_s).items() if key not in url.query}
    return url.update_query_dict(found).render_as_string(hide_password=False)


@final
class _RestCatalog(RestCatalog):
    """A REST catalog whose requests have a limit of time."""

    def _create_session(self) -> Session:
        return self._limited(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        """Ask for a token, which happens before the session is returned."""
        return super()._create_legacy_oauth2_auth_manager(self._limited(session))

    def _limited(self, session: Session) -> Session:
        send, timeout_s = session.send, float(self.properties[_TIMEOUT])

        def send_limited(*request: Any, **options: Any) -> Any:
            return send(*request, **{**options, "timeout": options.get("timeout") or timeout_s})

        session.send = send_limited  # type: ignore[method-assign]
        return session
