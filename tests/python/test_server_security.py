"""TLS and identities of the program reverie-server: what its files and flags may say, SIGHUP, and what it warns of."""

import os
import pathlib
import re
import shutil
import signal
import time

import pytest
import reverie
import server_program
import trustme
from security_files import ACTOR, LEARNER, Files, revoke


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_the_program_reads_identities_and_certificates_again_on_sighup(files):
    (files.folder / "token").write_text(f"{ACTOR}\n")
    config = files.folder / "server.yaml"
    config.write_text(
        f"""
listen: 127.0.0.1:0
tls: {{certificate: {files.server}}}
identities:
  - {{name: actors, token_file: {files.folder / "token"}, rights: {{t: insert}}}}
  - {{name: learner, token: {LEARNER}, rights: {{"*": [read, update]}}}}
tables:
  - name: t
"""
    )
    assert server_program.run("--config", str(config), "--check").returncode == 0
    with server_program.Server("--config", str(config)) as server:
        tls = reverie.TLS(authority=files.authority)
        reverie.Client(server.address, tls=tls, token=ACTOR).add("t", 1.0)
        assert reverie.Client(server.address, tls=tls, token=LEARNER).sample_batch("t", 1).data == [1.0]
        with pytest.raises(reverie.PermissionDeniedError):
            reverie.Client(server.address, tls=tls, token=LEARNER).add("t", 1.0)
        other = trustme.CA()
        other.cert_pem.write_to_path(str(files.folder / "other.pem"))
        files.issue("server.pem", "127.0.0.1", authority=other)
        (files.folder / "token").write_text("another-token-of-the-actors\n")
        server.signal(signal.SIGHUP)
        renewed = reverie.TLS(authority=files.folder / "other.pem")
        deadline = time.monotonic() + 60
        while True:  # the signal is on its way
            try:
                reverie.Client(server.address, tls=renewed, token=LEARNER).server_info(timeout=0.5)
                break
            except reverie.ReverieError:
                assert time.monotonic() < deadline
        while True:
            try:
                reverie.Client(server.address, tls=renewed, token="another-token-of-the-actors").add("t", 1.0, timeout=20)
                break
            except reverie.UnauthenticatedError:
                assert time.monotonic() < deadline
        with pytest.raises(reverie.UnauthenticatedError):
            reverie.Client(server.address, tls=renewed, token=ACTOR).add("t", 1.0, timeout=20)


def test_identities_that_an_open_server_is_given_by_sighup_are_asked_for(tmp_path):
    tables, identities = tmp_path / "tables.yaml", tmp_path / "identities.yaml"
    tables.write_text("listen: 127.0.0.1:0\ntables: [{name: t}]\n")
    identities.write_text("drain_seconds: 10\n")
    server = server_program.Server("--config", str(identities), "--config", str(tables))
    try:
        anybody = reverie.Client(server.address)
        anybody.add("t", 1.0)
        identities.write_text(f'identities: [{{name: learner, token: {LEARNER}, rights: {{"*": [read]}}}}]\n')
        server.signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while True:  # the signal is on its way
            try:
                anybody.reset("t")
            except reverie.UnauthenticatedError:
                break
            assert time.monotonic() < deadline
        with pytest.raises(reverie.PermissionDeniedError):
            reverie.Client(server.address, token=LEARNER).reset("t")
        identities.write_text("tls: {certificate: /nowhere.pem}\n")
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert "SIGHUP: the identities were read again" in err
    assert "SIGHUP: there is a tls mapping now; connections are encrypted after a restart, not before" in err
    assert "a server that asks who calls cannot stop asking; the identities are as before" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls: {certificate: /nowhere.pem}", "/nowhere.pem.*No such file"),
        ("tls: {cert: x}", "no field"),
        ("identities: [{name: x, token: 0123456789abcdef, rights: {t: [write]}}]", "read, insert, update or admin"),
        ("identities: [{name: x, token: short, rights: {t: [read]}}]", "too short"),
        ("identities: [{name: x, token_file: /nowhere, rights: {}}]", "/nowhere.*No such file"),
        ("identities: [{name: x, token_file: /, rights: {}}]", 'token_file: "/" is a directory, not a file with a token'),
        ("identities: [{name: x, token_file: /proc/self/mem}]", '"/proc/self/mem" cannot be read: Input/output error'),
        ("identities: [{name: x, token_file: /dev/null}]", '"/dev/null" is a device, not a file with a token in its first line'),
        ("identities: [{name: x, password: y}]", "no field"),
        (
            "identities:\n  - name: x\n    token: 0123456789abcdef\n    token_file: /dev/null\n",
            "server.yaml:4: identities.0..token_file: the identity has token and token_file, and only one",
        ),
        (
            "identities:\n  - name: x\n    token_file: {tokens}\n    token: 0123456789abcdef\n",
            "server.yaml:4: identities.0..token: the identity has token_file and token, and only one",
        ),
        ("identities: x", "expected a list of identities"),
    ],
)
def test_the_program_names_what_is_wrong(tmp_path, text, said):
    path, tokens = tmp_path / "server.yaml", tmp_path / "tokens"
    tokens.write_text(f"{ACTOR}\n")
    path.write_text(f"{text}\ntables: [{{name: t}}]\n".replace("{tokens}", str(tokens)))
    out = server_program.run("--config", str(path), "--check")
    assert out.returncode == 2
    assert re.search(said, out.stderr), out.stderr


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            b"0123456789abcdef\0ghijklmnop\n",
            r'the first line of the file ".*/token" has a NUL character; a token is visible ASCII',
        ),
        (b"\0" * 8192, r'the first line of the file ".*/token" has more than 4095 bytes'),
        (b"a" * 4096 + b"\n", r'the first line of the file ".*/token" has more than 4095 bytes'),
        (b"0123456789abcdef \n", "characters other than visible ASCII"),
    ],
)
def test_a_token_of_a_file_is_never_a_part_of_its_first_line(tmp_path, written, said):
    (tmp_path / "token").write_bytes(written)
    path = tmp_path / "server.yaml"
    path.write_text(f"tables: [{{name: t}}]\nidentities: [{{name: x, token_file: {tmp_path / 'token'}, rights: {{t: read}}}}]\n")
    out = server_program.run("--config", str(path), "--check")
    assert out.returncode == 2
    assert re.search(said, out.stderr), out.stderr
    assert "0123456789abcdef" not in out.stderr
    for good in (b"0123456789abcdef", b"0123456789abcdef\r\nanother line\0\n", b"a" * 4095 + b"\n"):
        (tmp_path / "token").write_bytes(good)
        out = server_program.run("--config", str(path), "--port", "0", "--check")
        assert (out.returncode, out.stderr) == (0, "")


def test_a_pipe_in_the_place_of_a_token_is_refused_and_holds_nobody_up(tmp_path):
    path, token = tmp_path / "server.yaml", tmp_path / "token"
    path.write_text(f"tables: [{{name: t}}]\nidentities: [{{name: x, token_file: {token}, rights: {{t: insert}}}}]\n")
    token.write_text(f"{ACTOR}\n")
    server = server_program.Server("--config", str(path), "--port", "0")
    try:
        token.unlink()
        os.mkfifo(token)
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert re.search(r'SIGHUP: .*token_file: ".*/token" is a pipe, .*; the identities are as before', err), err


@pytest.mark.parametrize("field", ["certificate", "key", "authority", "revocation_list"])
def test_a_pipe_in_the_place_of_a_file_of_tls_is_refused_and_holds_nobody_up(tmp_path, files, field):
    path, moved = tmp_path / "server.yaml", tmp_path / "moved.pem"
    given = {"certificate": files.server, "key": files.server, "authority": files.authority}
    if field == "revocation_list":
        given[field] = revoke(files)
    shutil.copy(given[field], moved)
    given[field] = moved
    path.write_text("tables: [{name: t}]\ntls:\n" + "".join(f"  {name}: {file}\n" for name, file in given.items()))
    server = server_program.Server("--config", str(path), "--port", "0")
    try:
        moved.unlink()
        os.mkfifo(moved)
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert re.search(r'SIGHUP: the .* file ".*/moved.pem" is a pipe; .*; the certificates are as before', err), err
    out = server_program.run("--config", str(path), "--check")
    assert out.returncode == 2
    assert '/moved.pem" is a pipe; give a file' in out.stderr


def test_files_other_than_the_certificate_are_told_where_they_are_given(files, tmp_path):
    path = tmp_path / "server.yaml"
    for field in ("key", "authority"):
        path.write_text(f"tables: [{{name: t}}]\ntls:\n  certificate: {files.server}\n  {field}: /nowhere.pem\n")
        out = server_program.run("--config", str(path), "--check")
        assert out.returncode == 2
        (line,) = server_program.lines(out.stderr, "error")
        assert line.startswith(f"{path}:4: tls.{field}: ")


def test_identities_that_cannot_be_used_after_sighup_are_told_with_their_place(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(f"identities:\n  - {{name: actors, token: {ACTOR}, rights: {{t: insert}}}}\n")
    server = server_program.Server("--config", str(path), "--port", "0", "--table", "name=t")
    try:
        path.write_text("identities:\n  - {name: actors, token: short, rights: {t: insert}}\n")
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert f"SIGHUP: {path}:2: identities[0]: the token of identity" in err
    assert "the identities are as before" in err


def test_tls_that_sighup_does_not_change_is_named(files, tmp_path):
    path, other = tmp_path / "server.yaml", tmp_path / "other.pem"
    other.write_bytes(pathlib.Path(files.server).read_bytes())
    running = f"listen: 127.0.0.1:0\ntables: [{{name: t}}]\ntls: {{certificate: {files.server}}}\n"
    path.write_text(running)
    server = server_program.Server("--config", str(path))
    try:
        path.write_text(running.replace(str(files.server), str(other)))
        server.signal(signal.SIGHUP)
        assert "needs a restart: tls_certificate\n" in server.process.stderr.readline()
        assert "the certificates were read again" in server.process.stderr.readline()
        path.write_text(running.split("tls: ")[0])
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert "SIGHUP: there is no tls mapping any more; connections are not encrypted after a restart" in err


RIGHTS_THAT_ALLOW_NOTHING = f"""
identities:
  - {{name: actors, token: {ACTOR}, rights: {{repaly: insert}}}}
  - {{name: learner, token: {LEARNER}, rights: {{"*": read}}}}
  - name: nobody
    token: another-token-of-nobody
"""


def test_rights_that_allow_nothing_are_told_with_their_place(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(f"tables: [{{name: replay}}, {{name: queue}}]\nlisten: 127.0.0.1:0{RIGHTS_THAT_ALLOW_NOTHING}")
    out = server_program.run("--config", str(path), "--check")
    assert out.returncode == 0
    table, identity = server_program.lines(out.stderr, "warning")
    assert table.startswith(f'{path}:4: identities[0].rights.repaly: there is no table "repaly"')
    assert table.endswith('the tables are "replay", "queue"')
    assert identity.startswith(f'{path}:6: identities[2]: identity "nobody" has no rights')
    server = server_program.Server("--config", str(path))
    server.signal(signal.SIGTERM)
    status, err = server.wait()
    assert status == 0
    assert f" warning: {table}\n" in err
    assert f" warning: {identity}\n" in err


def test_a_table_of_another_file_or_a_flag_is_one_that_rights_may_name(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(f"identities: [{{name: actors, token: {ACTOR}, rights: {{replay: insert}}}}]\n")
    out = server_program.run("--config", str(path), "--table", "name=replay", "--check")
    assert (out.returncode, out.stderr) == (0, "")


def test_rights_that_allow_nothing_are_told_also_when_they_come_by_sighup(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(f"identities: [{{name: actors, token: {ACTOR}, rights: {{replay: insert}}}}]\n")
    server = server_program.Server("--config", str(path), "--port", "0", "--table", "name=replay")
    try:
        path.write_text(RIGHTS_THAT_ALLOW_NOTHING)
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert "SIGHUP: the identities were read again" in err
    assert f"warning: {path}:3: identities[0].rights.repaly: " in err
    assert f"warning: {path}:5: identities[2]: " in err


def test_a_list_of_identities_that_lets_nobody_in_is_told_with_its_place(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("listen: 127.0.0.1:0\nidentities: []\n")
    (line,) = warnings_of("--config", str(path))
    assert line.startswith(f"{path}:2: identities: the list of identities is empty, so that every call is refused")
    other = tmp_path / "other.yaml"
    other.write_text(f"identities: [{{name: actors, token: {ACTOR}, rights: {{t: insert}}}}]\n")
    assert warnings_of("--config", str(path), "--config", str(other)) == []
    server = server_program.Server("--table", "name=t", "--config", str(path))
    try:
        assert f" warning: {line}\n" in server.process.stderr.readline()
        with pytest.raises(reverie.UnauthenticatedError):
            reverie.Client(server.address, token=ACTOR).server_info(timeout=20)
        path.write_text("\nlisten: 127.0.0.1:0\nidentities: []\n")
        status, err = server.end_after_reload()
    finally:
        server.kill()
    assert status == 0
    assert f"warning: {path}:3: identities: the list of identities is empty" in err


def warnings_of(*args):
    out = server_program.run("--table", "name=t", *args, "--check")
    assert out.returncode == 0, out.stderr
    return server_program.lines(out.stderr, "warning")


def test_an_identity_by_certificate_is_told_of_where_nobody_is_asked_for_one(files, tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("identities:\n  - {name: operator, certificate_name: operator, rights: {t: read}}\n")
    asks = ["--config", str(path), "--tls-certificate", files.server]
    (line,) = warnings_of(*asks)
    assert line.startswith(f'{path}:2: identities[0]: identity "operator" is known by its certificate')
    assert "--tls-authority" in line
    assert warnings_of(*asks, "--tls-authority", files.authority) == []


def test_a_limit_of_memory_that_cannot_be_meant_is_told_with_its_place(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("limits:\n  memory_limit: 16\n")
    (line,) = warnings_of("--config", str(path))
    assert line.startswith(f"{path}:2: limits.memory_limit: 16 bytes are hardly enough for one item")
    (line,) = warnings_of("--memory-limit", "1000000GiB")
    assert line.startswith("--memory-limit: it is 1024000000 MiB, and this machine has ")
    assert warnings_of("--memory-limit", "1MiB") == []


def test_a_bound_of_a_table_that_cannot_be_meant_is_told_with_its_place(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("tables:\n  - {name: a, max_bytes: 64KiB}\n  - {name: b, max_bytes: 4}\n  - {name: c, max_bytes: 0}\n")
    (line,) = warnings_of("--config", str(path))
    assert line.startswith(f'{path}:3: tables[1]: the max_bytes of table "b" are 4: they have room for hardly any items')
    (line,) = warnings_of("--table", "name=a,max_bytes=65535")
    assert line.startswith('--table: the max_bytes of table "a" are 65535: they have')


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:8000", "192.0.2.1:8000", "replay.example:8000"])
def test_an_address_that_others_reach_is_told_with_what_is_missing(files, tmp_path, address):
    path = tmp_path / "identities.yaml"
    path.write_text(f'identities: [{{name: learner, token: {LEARNER}, rights: {{"*": read}}}}]\n')
    listen, certificate, asks = ["--listen", address], ["--tls-certificate", files.server], ["--config", str(path)]
    (open_to_all,) = warnings_of(*listen)
    assert open_to_all.startswith(f"--listen: {address} is open to everybody")
    assert "without encryption or passwords; give it a TLS certificate and identities" in open_to_all
    assert "without encryption; give it a TLS certificate (" in warnings_of(*asks, *listen)[0]
    assert "without passwords; give it identities (" in warnings_of(*certificate, *listen)[0]
    assert warnings_of(*certificate, *asks, *listen) == []
    assert warnings_of(*certificate, "--tls-authority", files.authority, *listen) == []
    assert warnings_of("--log", "error", *listen) == []


def test_an_address_that_others_reach_is_told_where_the_file_has_it(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text('listen:\n  - 127.0.0.1:0\n  - 0.0.0.0:0\n  - "unix:/tmp/x"\n')
    (line,) = warnings_of("--config", str(path))
    assert line.startswith(f"{path}:3: listen[1]: 0.0.0.0:0 is open")
    path.write_text("port: 0\nhost: 0.0.0.0\n")
    (line,) = warnings_of("--config", str(path))
    assert line.startswith(f"{path}:2: host: 0.0.0.0:0 is open")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "127.8.0.1:0", "localhost:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "unix:/tmp/x"]
)
def test_nothing_is_told_of_an_address_of_this_machine_alone(address):
    assert warnings_of("--listen", address) == []


def test_a_server_that_others_reach_says_so_as_it_starts():
    server = server_program.Server("--listen", "0.0.0.0:0", "--table", "name=t")
    server.signal(signal.SIGTERM)
    status, err = server.wait()
    assert status == 0
    assert "warning: --listen: 0.0.0.0:0 is open to everybody" in err
