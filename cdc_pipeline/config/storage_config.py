"""A lake in an object store: its address as a value, and the settings of the store.

Rules:
- No I/O and no library of a store here: `sink.object_storage` reads and writes.
- An address contains no credentials, so that it may appear in logs, metadata and records.
- Secrets are `SecretStr`, come from the environment (``${NAME}``), and are omitted if unset: then
  the store's own chain decides (environment, profile of the machine, identity of the workload).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from cdc_pipeline.config.section import Section, Takes
from cdc_pipeline.config.units import Seconds

# Scheme -> form of its addresses.
SCHEMES: Final = {
    "s3a": "s3a://bucket/folder",
    "abfss": "abfss://container@account.dfs.core.windows.net/folder",
    "gs": "gs://bucket/folder",
}
_OTHER_NAMES: Final = {
    "s3": "s3a",
    "s3n": "s3a",
    "az": "abfss",
    "abfs": "abfss",
    "wasbs": "abfss",
    "gcs": "gs",
}


class StorageConfig(Section):
    """Settings of the object store that a lake lies in. All are optional."""

    endpoint: (
        Annotated[str, Takes("an address such as https://store.example:9000, without credentials")]
        | None
    ) = Field(default=None, pattern=r"^https?://[^\s@]+$")
    region: str | None = None
    path_style: bool | None = None
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    account_key: SecretStr | None = None
    sas_token: SecretStr | None = None
    service_account_file: str | None = None
    lease_s: Seconds = Field(default=60, ge=3, le=3600)
    retry_s: Seconds = Field(default=60, gt=0, le=3600)

    @property
    def secrets(self) -> tuple[str, ...]:
        """All that are set, to keep them out of messages."""
        values = (
            self.access_key_id,
            self.secret_access_key,
            self.session_token,
            self.account_key,
            self.sas_token,
        )
        return tuple(secret.get_secret_value() for secret in values if secret is not None)


@dataclass(frozen=True, slots=True)
class LakeUri:
    """An address in an object store, with the parts of `pathlib.Path` that do no I/O.

    Attributes:
        authority: bucket, or container and account.
        parts: names from the bucket's root.
        storage: settings of the store; ignored when addresses are compared.
    """

    scheme: str
    authority: str
    parts: tuple[str, ...]
    storage: StorageConfig = field(default_factory=StorageConfig, compare=False, repr=False)

    def __str__(self) -> str:
        return "/".join((f"{self.scheme}://{self.authority}", *self.parts))

    as_posix = as_uri = __str__

    def __truediv__(self, name: object) -> LakeUri:
        return self._at((*self.parts, *_names(str(name))))

    def _at(self, parts: tuple[str, ...]) -> LakeUri:
        return type(self)(self.scheme, self.authority, parts, self.storage)

    @property
    def key(self) -> str:
        """The name of the object in its bucket."""
        return "/".join(self.parts)

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> LakeUri:
        return self._at(self.parts[:-1])

    @property
    def parents(self) -> tuple[LakeUri, ...]:
        return tuple(self._at(self.parts[:count]) for count in reversed(range(len(self.parts))))

    def with_name(self, name: str) -> LakeUri:
        return self.parent / name

    def absolute(self) -> LakeUri:
        return self

    def relative_to(self, other: object) -> PurePosixPath:
        """Raises ValueError if it is not below `other`."""
        if (
            not isinstance(other, LakeUri)
            or (other.scheme, other.authority) != (self.scheme, self.authority)
            or self.parts[: len(other.parts)] != other.parts
        ):
            raise ValueError(f"{self} is not below {other}")
        return PurePosixPath(*self.parts[len(other.parts) :])


def check_lake_path(text: str) -> None:
    """Raises ValueError: the path has characters that Hadoop reads as a pattern or an escape, or
    that are invisible.
    """
    odd = sorted(
        {character for character in text if character in "%?*[]{}\\" or not character.isprintable()}
    )
    if odd:
        shown = " ".join(ascii(character) for character in odd)
        raise ValueError(
            f"a lake's path cannot contain {shown}, which has another meaning in Hadoop; "
            "choose another folder"
        )


def parse_uri(text: str) -> LakeUri | None:
    """The address in `text`; None for a path on the local disk.

    Raises ValueError: the address cannot be a lake; the message shows the right form.
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        return None
    scheme = scheme.lower()
    if scheme in _OTHER_NAMES:
        right = _OTHER_NAMES[scheme]
        raise ValueError(f"write {right}:// instead of {scheme}://, as in {SCHEMES[right]}")
    if scheme not in SCHEMES:
        raise ValueError(
            f"a lake cannot be at {scheme}://: expected a path on the local disk, "
            f"{', '.join(SCHEMES.values())}"
        )
    parts = urlsplit(text)
    user, at, host = parts.netloc.rpartition("@")
    if ":" in user or (at and scheme != "abfss"):
        raise ValueError(
            "an object store URL must not contain credentials: set them in sink.storage, "
            "from the environment"
        )
    if not host or (scheme == "abfss" and not user) or parts.query or parts.fragment:
        raise ValueError(f"expected {SCHEMES[scheme]}")
    return LakeUri(scheme, parts.netloc, _names(parts.path))


def _names(path: str) -> tuple[str, ...]:
    names = tuple(name for name in path.split("/") if name)
    if {".", ".."} & set(names):
        raise ValueError(f"{path!r} contains . or ..")
    return names
