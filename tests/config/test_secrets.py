"""Values of variables and settings that are secrets, or cannot be used, in what a file is told."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pymysql
import pytest

from cdc_pipeline.config.pipeline_config import (
    ArchiveSourceConfig,
    ConfigMistakes,
    LiveSourceConfig,
    PipelineConfig,
    read_document,
)
from cdc_pipeline.config.settings import effective_config
from cdc_pipeline.source.live.server_errors import connect_error
from tests.house.test_commands import texts
from tests.support.project import ROOT

SOURCE = "kind: live, host: db, user: u, password: p"


def loaded(
    tmp_path: Path, source: str = SOURCE, more: str = "", **variables: str
) -> PipelineConfig:
    file = tmp_path / "shop.yaml"
    file.write_text(f"source: {{{source}}}\nsink: {{lake_path: lake}}\n{more}", encoding="utf-8")
    return read_document(file, environment=variables).resolve()


def told(tmp_path: Path, source: str = SOURCE, more: str = "", **variables: str) -> str:
    with pytest.raises(ConfigMistakes) as caught:
        loaded(tmp_path, source, more, **variables)
    return str(caught.value)


def test_k26_f110_a_variable_that_contains_another_leaves_nothing(tmp_path: Path) -> None:
    source = "kind: live, host: db, user: '${DB_USER}', password: p, connect_timeout_s: '${PW}'"
    said = told(tmp_path, source, DB_USER="sales", PW="sales#x9")
    assert "'${PW}'" in said
    assert "x9" not in said


@pytest.mark.parametrize("where", ["host: {}", "host: db, standby: {{host: {}}}"])
@pytest.mark.parametrize("host", ["user:hunter2@h", "h:hunter2", "mysql//hunter2", "hun ter2"])
def test_k26_f110_a_host_with_credentials_is_refused_and_not_shown(
    tmp_path: Path, where: str, host: str
) -> None:
    source = f"kind: live, user: u, password: p, {where.format(repr(host))}"
    said = told(tmp_path, source)
    assert "is not the name or the address of a machine" in said
    assert "ter2" not in said


@pytest.mark.parametrize("host", ["db", "db-1.example", "10.0.0.7", "'::1'", "'fe80::1%eth0'"])
def test_hosts_that_are_accepted(tmp_path: Path, host: str) -> None:
    loaded(tmp_path, f"kind: live, user: u, password: p, host: {host}")


@pytest.mark.parametrize("mode", ["off", "preferred", "required"])
def test_f111_a_file_that_a_mode_would_not_use_is_refused(tmp_path: Path, mode: str) -> None:
    """`preferred` with a ca_file refused a server without TLS, and checked nothing."""
    said = told(tmp_path, f"{SOURCE}, tls: {{mode: {mode}, ca_file: ca.pem}}")
    assert "source.tls.ca_file: mode" in said
    assert "set mode to verify or verify_ca" in said
    with_key = f"{SOURCE}, tls: {{mode: {mode}, certificate_file: c.pem}}"
    if mode == "required":
        loaded(tmp_path, with_key)
    else:
        assert "source.tls.certificate_file: with mode" in told(tmp_path, with_key)


def test_k26_f111_nobody_is_told_to_do_without_tls() -> None:
    """A server whose TLS was stripped on the way, and every other step of an error."""
    stripped = pymysql.OperationalError(2026, "SSL is required but the server doesn't support it")
    error = connect_error(stripped, address="db:3306", user="u")
    assert "offers no TLS" in str(error)
    assert "takes TLS out of its greeting" in str(error.next_step)
    said = [
        text
        for file in (ROOT / "cdc_pipeline").rglob("*.py")
        for text in texts(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert any("source.tls.mode" in text for text in said)
    forbidden = re.compile(r"source\.tls\.mode to (off|preferred|required)")
    assert not [text for text in said if forbidden.search(text)]


@pytest.mark.parametrize("written", [r'"\ud83d\ude00"', '"\U0001f600"', r'"\U0001f600"'])
def test_f111_a_pair_of_surrogates_is_its_character(tmp_path: Path, written: str) -> None:
    config = loaded(tmp_path, f"kind: live, host: db, user: {written}, password: {written}")
    assert isinstance(config.source, LiveSourceConfig)
    assert config.source.user == "\U0001f600"
    assert config.source.password.get_secret_value().encode() == "\U0001f600".encode()


def test_k26_f111_half_a_pair_is_a_mistake_and_not_shown(tmp_path: Path) -> None:
    said = told(tmp_path, r'kind: live, host: db, user: "\ude00", password: "secret\ud83d"')
    assert said.count("is no Unicode text") == 2
    assert "secret" not in said.replace("a secret", "")
    assert "is no Unicode text" in told(
        tmp_path, "kind: live, host: db, user: u, password: '${PW}'", PW="caf\udce9"
    )


def test_k26_what_is_sent_to_executors_is_without_the_file_and_the_environment(
    tmp_path: Path,
) -> None:
    config = loaded(tmp_path, "kind: live, host: db, user: u, password: hunter2", PW="sales#x9")
    archive = ArchiveSourceConfig(kind="archive", directory=tmp_path)
    sent = pickle.dumps(config.model_copy(update={"source": archive}))
    assert b"hunter2" not in sent
    assert b"sales#x9" not in sent


def test_settings_of_a_library_have_names_of_any_type(tmp_path: Path) -> None:
    loaded(tmp_path, more="openlineage: {transport: {type: http, custom_headers: {1: abc}}}\n")
    assert "custom_headers" in str(effective_config(tmp_path / "shop.yaml"))


ARCHIVE = "kind: archive, directory: x"


@pytest.mark.parametrize(
    ("source", "more", "path"),
    [
        ("kind: '${CANARY}', directory: x", "", "source.kind"),
        (ARCHIVE, "targets: [{tables: [a.b], mode: '${CANARY}'}]", "targets.0.mode"),
        (
            ARCHIVE,
            "targets: [{computed: {c: {expression: \"'${CANARY}'\", type: string}}}]",
            "targets.0.computed.c.expression",
        ),
        (ARCHIVE, "targets: [{tables: [a.b], filter: \"b <> '${CANARY}'\"}]", "targets.0.filter"),
        (ARCHIVE, "store: {kind: '${CANARY}'}", "store.kind"),
        (ARCHIVE, "tables: {include: ['${CANARY}']}", "tables.include"),
    ],
)
def test_k26_no_value_of_a_variable_is_in_a_mistake_or_recorded(
    source: str, more: str, path: str, tmp_path: Path
) -> None:
    said = told(tmp_path, source, more, CANARY="Canary'51\\c")
    assert f"{path}:" in said
    assert "Canary" not in said
    assert "51\\c" not in said


def test_k26_a_password_of_the_environment_is_not_shown(tmp_path: Path) -> None:
    config = loaded(tmp_path, "kind: live, host: db, user: u, password: '${PW}'", PW="s3cret")
    assert isinstance(config.source, LiveSourceConfig)
    assert config.source.password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(config) + config.model_dump_json()
    wrong = "kind: live, host: db, user: u, password: '${PW}', port: x"
    assert "s3cret" not in told(tmp_path, wrong, PW="s3cret")


def test_what_belongs_in_the_first_column_is_told(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"source: {{{SOURCE}}}\nsink: {{lake_path: lake, snapshot: 1}}\n")
    with pytest.raises(
        ConfigMistakes, match=r"sink\.snapshot: no such setting here; it belongs in"
    ):
        read_document(file, environment={}).resolve()


def test_items_after_one_of_an_unset_variable_keep_their_places(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        more="tables:\n  include: ['${UNSET}', shop.*, 'a b']\n"
        "targets:\n- '${UNSET}'\n- {tables: [shop.a], mode: wrong}\n"
        "- {tables: ['${UNSET}'], mode: '${UNSET}'}\n- {tables: [shop.b], key: '${UNSET}'}\n",
    )
    assert re.findall(r"line (\d+), column \d+: ([\w.]+): (.{5})", said) == [
        ("4", "tables.include", "'a b'"),
        ("4", "tables.include.0", "the e"),
        ("6", "targets.0", "the e"),
        ("7", "targets.1.mode", "got '"),
        ("8", "targets.2.tables.0", "the e"),
        ("8", "targets.2.mode", "the e"),
        ("9", "targets.3.key", "the e"),
    ]
