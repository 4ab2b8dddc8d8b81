"""The object store of tables whose directory is a URL: where it answers, and who asks it."""

from __future__ import annotations

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.web_url import check_web_url


class ObjectStoreSettings(SettingsGroup):
    """Access to tables in s3://, gs:// and abfss://. It has no secret: these come from the
    environment, a profile, a file, or from the machine that the job runs on."""

    endpoint: str = ""
    """URL of the store for s3://, http:// or https://, such as that of MinIO, Ceph, R2 or
    SeaweedFS. Empty for that of the environment (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL), else
    Amazon's."""

    region: str = ""
    """Region of the buckets, such as eu-central-1. Empty for that of the environment or the
    profile, and for us-east-1 where there is none and an endpoint is given."""

    path_style: bool | None = None
    """true if the bucket is a part of the path, false if it is one of the host name
    (BUCKET.minio.plant for the endpoint https://minio.plant); without it, true where an endpoint is
    given."""

    ca_file: str = ""
    """PEM file of the authorities that sign the certificate of the endpoint; empty for those of the
    system."""

    profile: str = ""
    """Profile of ~/.aws/credentials and ~/.aws/config whose keys are used. Empty for those of the
    environment (AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE), else of the machine's
    role."""

    credentials_file: str = ""
    """File with the credentials, read again when it changes. For s3:// as ~/.aws/credentials, for
    abfss:// the same with azure_storage_account_key or another of Azure's names, for gs:// the JSON
    of a service account. Empty for none."""

    timeout_s: float = Field(default=30.0, ge=1, le=600)
    """How long one request may take, in seconds. 1 to 600."""

    retry_s: float = Field(default=60.0, ge=0, le=3600)
    """How long a request that failed for the moment is repeated, in seconds; after that the job
    waits longer and begins its batch anew. 0 to 3600."""

    @model_validator(mode="after")
    def _endpoint_is_a_url(self) -> ObjectStoreSettings:
        if self.endpoint:
            where = ("tables.object_store", self.endpoint, self.ca_file)
            check_web_url(*where, "credentials_file", "endpoint")
        elif self.ca_file:
            raise ValueError("tables.object_store.ca_file needs an endpoint")
        return self
