"""TLS and identities: who may call a server, what it may do, and what others are told; with our own client and with grpcio.

How reverie-server is configured with them: test_server_security.py.
"""

import os
import pickle
import re
import signal
import subprocess

import grpc
import numpy as np
import pytest
import reverie
import server_program
import trustme
from conftest import make_table
from cryptography import x509
from security_files import ACTOR, LEARNER, Files, revoke
from waiting import HeldPort, says_at_its_deadline, until


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
