"""A real S3 server: Versity's gateway over a folder of this machine.

Order of search:
1. the program named by ``CDC_PIPELINE_VERSITYGW`` (one that does not run is an error);
2. the project's cache; filled once by ``go install`` of the pinned version.

Rules:
- What was built is compared with `_SOURCES`, a checksum over the hashes that Go has of every module
  that is in it. So a proxy cannot serve anything else, whatever the machine's Go settings are.
- Without Go, and without a program that is named, there is none: tests skip and say so.
- Objects are files below its folder, so that a test reads a lake without a JVM.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from cdc_pipeline.errors import RuntimeSetupError
from tests.cluster.daemon import Daemon, accepts, free_port
from tests.servers.installation import cache_folder, fill_once
from tests.support.object_store import Store, make_bucket, s3_client
from tests.support.object_store_server import ACCESS_KEY, READ_KEY, SECRET

VARIABLE = "CDC_PIPELINE_VERSITYGW"
VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw"
_SOURCES = "aaef43908e2dfcfcc14a2a66afebc14ab5bf755f97730a8bbf2d4386e3d4daae"
_WAY_OUT = f"install Go 1.25 or newer, or name a versitygw by {VARIABLE}"


@cache
def find_gateway() -> Path:
    """The program, built if need be. Raises RuntimeSetupError: there is no Go, it cannot be built,
    or it is not what was pinned.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if shutil.which(named) is None:
            raise RuntimeSetupError(
                f"{named} does not run",
                setting=VARIABLE,
                expected="a versitygw",
                next_step=f"name another program, or unset {VARIABLE} to let the tests build one",
            )
        return Path(named)
    folder = fill_once(cache_folder().with_name(f"versitygw-{VERSION}"), _build)
    return folder / "versitygw"


@contextmanager
def gateway_or_skip(folder: Path) -> Iterator[Gateway]:
    """A running server over a folder; the test is skipped where none can be had."""
    try:
        find_gateway()
    except RuntimeSetupError as error:
        pytest.skip(str(error))
    with running_gateway(folder) as running:
        yield running


def _build(unfinished: Path) -> dict[str, object]:
    go = shutil.which("go")
    if go is None:
        raise RuntimeSetupError(
            "there is no Go to build the tests' S3 server with", next_step=_WAY_OUT
        )
    wanted = f"{_MODULE}/cmd/versitygw@{VERSION}"
    environment = {**os.environ, "GOBIN": str(unfinished), "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [go, "install", wanted], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeSetupError(
            f"go install {wanted} failed", got=done.stderr[-2000:], next_step=_WAY_OUT
        )
    found = sources_checksum(go, unfinished / "versitygw")
    if found != _SOURCES:
        raise RuntimeSetupError(
            "the S3 server was built from other sources than those that are pinned",
            expected=_SOURCES,
            got=found,
            next_step="find out which module proxy or replacement Go uses: go env GOPROXY GOFLAGS",
        )
    return {"module": _MODULE, "version": VERSION, "sources": found}


def sources_checksum(go: str, program: Path) -> str:
    """SHA-256 over names, versions and Go's hashes of all modules that a program was built from."""
    listed = subprocess.run(
        [go, "version", "-m", str(program)], capture_output=True, text=True, check=True
    ).stdout
    modules = [line.split() for line in listed.splitlines()]
    lines = sorted(" ".join(words[1:]) for words in modules if words[:1] in (["mod"], ["dep"]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Gateway:
    store: Store
    daemon: Daemon
    folder: Path

    def on_disk(self, lake: str) -> Path:
        """The folder of a lake (see `Store.lake`) on this machine's disk."""
        return self.folder / lake.removeprefix(f"s3a://{self.store.bucket}/")


@contextmanager
def running_gateway(folder: Path) -> Iterator[Gateway]:
    port = free_port()
    objects = folder / "objects"
    objects.mkdir(parents=True)
    program = str(find_gateway())
    (folder / "accounts").mkdir()
    command = [program, "--port", f"127.0.0.1:{port}", "--quiet"]
    command += ["--iam-dir", str(folder / "accounts")]
    options = []
    if not _has_attributes(folder):
        (folder / "attributes").mkdir()
        options = ["--sidecar", str(folder / "attributes")]
    daemon = Daemon(
        "the S3 server",
        [*command, "posix", *options, str(objects)],
        log=folder / "gateway.log",
        is_ready=lambda: accepts(port),
        environment={"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET},
    )
    with daemon:
        endpoint, bucket = f"http://127.0.0.1:{port}", "lakes"
        make_bucket(endpoint, bucket)
        _let_read(program, endpoint, bucket)
        yield Gateway(Store(endpoint, bucket, folder / "none.log"), daemon, objects / bucket)


def _let_read(program: str, endpoint: str, bucket: str) -> None:
    """Make the account `READ_KEY`, which may read and list the bucket's objects, and not write."""
    root = ["--access", ACCESS_KEY, "--secret", SECRET, "--endpoint-url", endpoint]
    account = ["--access", READ_KEY, "--secret", SECRET, "--role", "user"]
    subprocess.run(
        [program, "admin", *root, "create-user", *account], check=True, capture_output=True
    )
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": [READ_KEY]},
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    s3_client(endpoint).put_bucket_policy(Bucket=bucket, Policy=policy)


def _has_attributes(folder: Path) -> bool:
    """Whether files of a folder can have extended attributes, where the server keeps what S3 says
    of an object."""
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.probe", b"1")
    except OSError:
        return False
    finally:
        probe.unlink()
    return True
