"""TLS and identities: who may call a server, what it may do, and what others are told; with our own client and with grpcio."""

import datetime
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import time

import grpc
import numpy as np
import pytest
import reverie
import server_program
import trustme
from conftest import make_table
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from waiting import HeldPort, says_at_its_deadline, until

ACTOR, LEARNER = "token-of-the-actors", "token-of-the-learner"


class Files:
    """An authority, a server's certificate for 127.0.0.1, and a client's for "actor-7"."""

    def __init__(self, folder):
        self.folder = folder
        self.trust = trustme.CA()
        self.authority = str(folder / "authority.pem")
        self.trust.cert_pem.write_to_path(self.authority)
        self.server = self.issue("server.pem", "127.0.0.1", "localhost")
        self.client = self.issue("client.pem", "actor.example", common_name="actor-7")

    def issue(self, name, *names, authority=None, **options):
        path = str(self.folder / name)
        (authority or self.trust).issue_cert(*names, **options).private_key_and_cert_chain_pem.write_to_path(path)
        return path


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def identities():
    return [
        reverie.Identity(name="actors", token=ACTOR, rights={"t": "insert"}),
        reverie.Identity(name="learner", token=LEARNER, rights={"*": ["read", "update"]}),
        reverie.Identity(name="seventh", certificate_name="actor-7", rights={"t": ["insert", "admin"]}),
    ]


def serve(**options):
    return reverie.Server([make_table("t"), make_table("other")], address="127.0.0.1:0", **options)


# ---- TLS ----


def sh(text, folder):
    done = subprocess.run(["bash", "-euc", text], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_certificates_made_as_the_page_shows_let_in_who_is_not_revoked(tmp_path):
    page = (server_program.ROOT / "docs/security.md").read_text()
    make, revoke = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    def is_revoked(address):
        try:
            reverie.Client(address, tls=tls).server_info(timeout=0.5)
        except reverie.ReverieError as error:
            return "certificate was revoked" in str(error)
        return False

    sh(make, tmp_path)
    path = {name: str(tmp_path / name) for name in ("authority.pem", "server.pem", "server.key", "operator.pem", "operator.key")}
    config = tmp_path / "server.yaml"
    config.write_text('tables: [{name: t}]\nidentities: [{name: o, certificate_name: operator, rights: {"*": admin}}]\n')
    (flags,) = re.findall(r"^    reverie-server --config replay.yaml (--tls.*--tls-revocation-list.*)$", page, re.MULTILINE)
    flags = [word if word.startswith("--") else str(tmp_path / word) for word in flags.split()]
    tls = reverie.TLS(authority=path["authority.pem"], certificate=path["operator.pem"], key=path["operator.key"])
    server = server_program.Server("--config", str(config), "--port", "0", *flags)
    try:
        for host in ("127.0.0.1", "localhost"):
            reverie.Client(f"{host}:{server.port}", tls=tls).reset("t", timeout=60)
        sh(revoke, tmp_path)
        server.signal(signal.SIGHUP)
        until(lambda: is_revoked(server.address))
    finally:
        server.kill()


def test_the_pages_programs_and_file_are_right_beside_the_certificates_that_it_makes(tmp_path, monkeypatch):
    page = (server_program.ROOT / "docs/security.md").read_text()
    sh(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0], tmp_path)
    (yaml,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for identity in ("actors", "learner", "operator"):
        (tmp_path / identity).write_text(f"the-token-of-{identity}")
    (tmp_path / "server.yaml").write_text(yaml.replace("/run/secrets", str(tmp_path)) + "tables: [{name: replay}]\n")
    checked = server_program.run("--config", "server.yaml", "--check", cwd=tmp_path)
    assert (checked.returncode, "warning" in checked.stderr) == (0, False), checked.stderr
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    port = HeldPort()
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(programs).replace(":8000", f":{port.number}"), "docs/security.md", "exec"), {"__name__": "page"})
    port.close()


def test_rows_go_over_tls_as_they_do_without(files):
    once = make_table("t", max_times_sampled=1)
    with reverie.Server([once], address="127.0.0.1:0", tls=reverie.TLS(certificate=files.server)) as server:
        client = reverie.Client(server.address, tls=reverie.TLS(authority=files.authority))
        rows = np.random.default_rng(0).integers(0, 255, (64, 40000), dtype=np.uint8)
        client.add_batch("t", {"obs": rows})
        batch = client.sample_batch("t", 64)
        np.testing.assert_array_equal(batch.data["obs"], rows)


def test_files_whose_paths_are_no_text_are_read(files):
    folder = os.fsencode(files.folder)
    for name in (b"server", b"authority"):
        os.rename(folder + b"/" + name + b".pem", folder + b"/\xff" + name)
    with serve(tls=reverie.TLS(certificate=folder + b"/\xffserver")) as server:
        reverie.Client(server.address, tls=reverie.TLS(authority=os.fsdecode(folder + b"/\xffauthority"))).add("t", 1.0)
    with pytest.raises(ValueError, match=r"nowhere\?\.pem\" cannot be read"):
        serve(tls=reverie.TLS(certificate=folder + b"/nowhere\xff.pem"))


def is_told(words, address, **options):
    """A client that cannot get a connection says why when its time is over."""
    client = reverie.Client(address, **options)
    says_at_its_deadline(lambda timeout: client.server_info(timeout=timeout), words, 0.5, reverie.ReverieError)


def test_a_client_without_trust_is_told_what_to_give(files):
    with serve(tls=reverie.TLS(certificate=files.server)) as server:
        is_told("is not trusted.*authority", server.address, tls=reverie.TLS())
        whole = r"\(connecting to [^(]*\(the .* is not trusted: .*; give the authority that signed it; attempt \d+\)\); is one"
        is_told(whole, server.address, tls=reverie.TLS())
        is_told("does it expect TLS", server.address)
    with serve() as server:
        is_told("does not speak TLS", server.address, tls=reverie.TLS(authority=files.authority))


def test_certificates_are_read_again_while_it_runs(files):
    with serve(tls=reverie.TLS(certificate=files.server)) as server:
        before = reverie.Client(server.address, tls=reverie.TLS(authority=files.authority))
        before.add("t", 1.0)
        other = trustme.CA()
        other.cert_pem.write_to_path(str(files.folder / "other.pem"))
        files.issue("server.pem", "127.0.0.1", authority=other)
        server.reload_tls()
        reverie.Client(server.address, tls=reverie.TLS(authority=files.folder / "other.pem")).add("t", 2.0)
        os.truncate(files.server, 10)
        with pytest.raises(ValueError, match="server.pem"):
            server.reload_tls()
        before.add("t", 3.0)


def revoke(files, *serials):
    """The authority's list of revoked certificates; the path."""
    now = datetime.datetime.now(datetime.UTC)
    key = serialization.load_pem_private_key(files.trust.private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(files.trust.cert_pem.bytes())
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    builder = builder.last_update(now - datetime.timedelta(days=1)).next_update(now + datetime.timedelta(days=1))
    for serial in serials:
        revoked = (
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - datetime.timedelta(hours=1)).build()
        )
        builder = builder.add_revoked_certificate(revoked)
    path = files.folder / "revoked.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


def test_a_revoked_certificate_is_refused_without_a_restart(files):
    tls = reverie.TLS(certificate=files.server, authority=files.authority, revocation_list=revoke(files))
    with open(files.client, "rb") as file:
        serial = x509.load_pem_x509_certificates(file.read())[0].serial_number
    mine = reverie.TLS(certificate=files.client, authority=files.authority)
    other = reverie.TLS(certificate=files.issue("other.pem", "other.example"), authority=files.authority)
    with serve(tls=tls) as server:
        reverie.Client(server.address, tls=mine).add("t", 1.0)
        revoke(files, serial)
        server.reload_tls()
        is_told("certificate was revoked", server.address, tls=mine)
        reverie.Client(server.address, tls=other).add("t", 2.0)


def test_reverie_server_takes_a_revocation_list(files):
    flags = [
        "--check",
        "--table",
        "name=t",
        "--tls-certificate",
        files.server,
        "--tls-authority",
        files.authority,
        "--tls-revocation-list",
    ]
    assert server_program.run(*flags, str(revoke(files))).returncode == 0
    failed = server_program.run(*flags, str(files.folder / "nowhere.pem"))
    assert failed.returncode != 0
    assert 'revocation file "' in failed.stderr


def test_files_that_cannot_be_used_are_named(files):
    with pytest.raises(ValueError, match="nowhere.pem.*No such file"):
        serve(tls=reverie.TLS(certificate=files.folder / "nowhere.pem"))
    with pytest.raises(ValueError, match="certificate"):
        serve(tls=reverie.TLS())
    with pytest.raises(TypeError, match="reverie.TLS"):
        serve(tls=files.server)


def test_what_the_page_of_settings_shows_as_comments_is_right_too(files, tmp_path):
    page = (server_program.ROOT / "docs/server.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^listen:.*\n", "", re.sub(r"^( *)# ", r"\1", shown, flags=re.MULTILINE), flags=re.MULTILINE)
    for place in ("/data", "/run/secrets", "/fast/disk"):
        text = text.replace(place, str(tmp_path))
    text = text.replace("server.key", "server.pem").replace("clients.pem", "authority.pem")  # as `files` has them
    revoke(files)
    for identity in ("actors", "learner"):
        (tmp_path / identity).write_text(f"the-token-of-{identity}\n")
    (tmp_path / "all.yaml").write_text(text)
    checked = server_program.run("--config", "all.yaml", "--check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    told = [line.split("warning: ")[1] for line in checked.stderr.splitlines()]
    assert all(re.match(r"all\.yaml:\d+: (checkpoints\.fallback|limits\.memory_limit)", line) for line in told), told


# ---- identities ----


def test_each_may_do_what_it_was_granted_and_no_more():
    with serve(identities=identities()) as server:
        actor, learner = (reverie.Client(server.address, token=token) for token in (ACTOR, LEARNER))
        key = actor.add("t", 1.0)
        assert learner.sample_batch("t", 1).keys[0] == key
        learner.mutate_priorities("t", updates={int(key): 2.0})
        with pytest.raises(reverie.PermissionDeniedError, match='"actors" has not the right "read" on table "t"'):
            actor.sample_batch("t", 1, timeout=20)
        with pytest.raises(reverie.PermissionDeniedError, match='"insert" on table "other"'):
            actor.add("other", 1.0)
        with pytest.raises(reverie.PermissionDeniedError, match="admin"):
            learner.reset("t")
        with pytest.raises(reverie.PermissionDeniedError, match="every table"):
            learner.checkpoint()
        # The owner's own process is asked for nothing.
        assert reverie.Client(server).sample_batch("t", 1).keys[0] == key


def test_writers_and_samplers_end_with_the_reason():
    with serve(identities=identities()) as server:
        learner, actor = reverie.Client(server.address, token=LEARNER), reverie.Client(server.address, token=ACTOR)
        denied = pytest.raises(reverie.PermissionDeniedError, match='"learner" has not the right "insert"')
        with denied, learner.trajectory_writer(1) as writer:
            writer.append({"x": 1.0})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(timeout_ms=20000)
        with pytest.raises(reverie.PermissionDeniedError, match='"read"'):
            next(iter(actor.sample("t", 1)))


def test_nobody_known_gets_nothing():
    with serve(identities=identities()) as server:
        for token in (None, "token-of-nobody-at-all"):
            with pytest.raises(reverie.UnauthenticatedError, match="token"):
                reverie.Client(server.address, token=token).server_info(timeout=20)
    with serve(identities=[]) as server, pytest.raises(reverie.UnauthenticatedError):
        reverie.Client(server.address).server_info(timeout=20)


def test_identities_change_while_the_server_runs():
    with serve(identities=identities()) as server:
        actor, learner = (reverie.Client(server.address, token=token) for token in (ACTOR, LEARNER))
        with actor.trajectory_writer(1) as writer:
            for value in (1.0, 2.0):
                writer.append({"x": value})
                writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
                writer.flush(timeout_ms=20000)
                server.set_identities([each for each in identities() if each.name != "learner"])
        with pytest.raises(reverie.UnauthenticatedError):
            learner.sample_batch("t", 1, timeout=20)
        with pytest.raises(ValueError, match="too short"):
            server.set_identities([reverie.Identity(name="x", token="short", rights={})])
        assert actor.add("t", {"x": 3.0})
        server.set_identities([])
        with pytest.raises(reverie.UnauthenticatedError):
            actor.add("t", {"x": 4.0}, timeout=20)
        with pytest.raises(TypeError, match="cannot stop asking"):
            server.set_identities(None)
    with pytest.raises(reverie.FailedPreconditionError):
        server.set_identities([])


def test_a_certificate_says_who_calls(files):
    with serve(tls=reverie.TLS(certificate=files.server, authority=files.authority), identities=identities()) as server:
        client = reverie.Client(server.address, tls=reverie.TLS(certificate=files.client, authority=files.authority))
        client.add("t", 1.0)
        with pytest.raises(reverie.PermissionDeniedError, match="seventh"):
            client.sample_batch("t", 1, timeout=20)
        client.reset("t")


def test_who_is_known_by_a_certificate_that_nobody_is_asked_for_is_told_of(files, caplog):
    (by_certificate,) = (identity for identity in identities() if identity.certificate_name)
    with serve(identities=identities(), tls=reverie.TLS(certificate=files.server)) as server:
        until(lambda: len(caplog.records) == 1)
        server.set_identities([by_certificate])
        until(lambda: len(caplog.records) == 2)
        server.set_identities(identities()[:2])
    with serve(identities=identities(), tls=reverie.TLS(certificate=files.server, authority=files.authority)) as server:
        server.set_identities([by_certificate])
    told = {record.getMessage() for record in caplog.records}
    assert told == {
        'identity "seventh" is known by its certificate, and nobody is asked for one; give who signs them by TLS(authority=...)'
    }
    assert len(caplog.records) == 2


def test_the_environment_gives_what_a_program_does_not(files, monkeypatch):
    monkeypatch.setenv("REVERIE_TOKEN", ACTOR)
    monkeypatch.setenv("REVERIE_TLS_AUTHORITY", files.authority)
    with serve(tls=reverie.TLS(certificate=files.server), identities=identities()) as server:
        reverie.Client(server.address).add("t", 1.0)
        assert reverie.Client(server.address, token=LEARNER).sample_batch("t", 1).data == [1.0]


def test_the_environment_says_who_calls_over_a_unix_socket(files, tmp_path, monkeypatch):
    monkeypatch.setenv("REVERIE_TOKEN", ACTOR)
    monkeypatch.setenv("REVERIE_TLS_AUTHORITY", files.authority)  # for other addresses: this one has no TLS
    with reverie.Server([make_table("t")], address=f"unix:{tmp_path}/socket", identities=identities()) as server:
        reverie.Client(server.address).add("t", 1.0)
        with pytest.raises(reverie.PermissionDeniedError, match="actors"):
            reverie.Client(server.address).sample_batch("t", 1)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="in the clear; use TLS"):
        reverie.Client("replay.example:8000", token=ACTOR)
    with pytest.raises(ValueError, match="too short"):
        serve(identities=[reverie.Identity(name="x", token="short", rights={})])
    with pytest.raises(ValueError, match="read, insert, update, admin"):
        serve(identities=[reverie.Identity(name="x", token=ACTOR, rights={"t": "write"})])
    for rights in ("write", b"read", [["read"]], []):
        with pytest.raises(ValueError, match="the rights on 't' must be some of read, insert, update, admin, got"):
            serve(identities=[reverie.Identity(name="x", token=ACTOR, rights={"t": rights})])
    for rights in (5, None, True):
        with pytest.raises(TypeError, match=f"the rights on 't' must be some of read, insert, update, admin, got {rights}"):
            serve(identities=[reverie.Identity(name="x", token=ACTOR, rights={"t": rights})])
    with pytest.raises(TypeError, match="must name tables"):
        serve(identities=[reverie.Identity(name="x", token=ACTOR, rights={None: "admin"})])
    with pytest.raises(ValueError, match="in the clear; use TLS"):
        reverie.Client("127.replay.example:8000", token=ACTOR)
    with pytest.raises(ValueError, match="leave tls and identities out"):
        reverie.Server([make_table()], in_process=True, identities=[])
    assert ACTOR not in repr(identities()[0])


def test_clients_of_other_processes_are_who_their_client_is(files):
    with serve(tls=reverie.TLS(certificate=files.server), identities=identities()) as server:
        client = reverie.Client(server.address, tls=reverie.TLS(authority=files.authority), token=ACTOR)
        pickle.loads(pickle.dumps(client)).add("t", 1.0)
        server.localhost_client(tls=reverie.TLS(authority=files.authority), token=ACTOR).add("t", 2.0)


def test_listening_everywhere_says_what_is_missing(files):
    with pytest.warns(reverie.OpenPortWarning, match="without passwords;"):
        reverie.Server([make_table()], port=0, tls=reverie.TLS(certificate=files.server)).stop()
    with pytest.warns(reverie.OpenPortWarning, match="without encryption;"):
        reverie.Server([make_table()], port=0, identities=identities()).stop()


# ---- another implementation of gRPC ----


def test_grpcio_speaks_tls_and_tokens_with_the_server(files, tmp_path_factory):
    server_program.generate_stubs(tmp_path_factory.mktemp("stubs"))
    from deepmind.reverb import reverb_service_pb2, reverb_service_pb2_grpc

    trust = grpc.ssl_channel_credentials(files.trust.cert_pem.bytes())
    with (
        serve(tls=reverie.TLS(certificate=files.server), identities=identities()) as server,
        grpc.secure_channel(f"localhost:{server.port}", trust) as channel,
    ):
        stub = reverb_service_pb2_grpc.ReverbServiceStub(channel)
        request = reverb_service_pb2.ServerInfoRequest()
        answer = stub.ServerInfo(request, timeout=20, metadata=[("authorization", f"Bearer {LEARNER}")])
        assert [table.name for table in answer.table_info] == ["t", "other"]
        with pytest.raises(grpc.RpcError) as caught:
            stub.ServerInfo(request, timeout=20)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(b"", timeout=20) == b"\x08\x01"  # asked of nobody: SERVING


# ---- reverie-server ----


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
