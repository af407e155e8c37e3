"""Runs reverie-server, and speaks Reverb's protocol to it with grpcio: what the tests of the program share."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
_generated = []


def path():
    """The program: RV_SERVER_PROGRAM, or the one in a build folder."""
    given = os.environ.get("RV_SERVER_PROGRAM")
    if given:
        return given
    found = [ROOT / "build" / preset / "tools" / "reverie-server" for preset in ("release", "debug", "asan")]
    for program in found:
        if program.exists():
            return str(program)
    raise RuntimeError(f"no reverie-server: build it, or set RV_SERVER_PROGRAM (looked for {[str(p) for p in found]})")


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines(err, level):
    """The texts of what it wrote to stderr, of which each line must have its time and this level."""
    matches = [re.fullmatch(rf"{STAMP} {level}: (.*)", line) for line in err.splitlines()]
    assert all(matches), err
    return [match[1] for match in matches]


def run(*args, timeout=30, cwd=None):
    """Runs the program to its end."""
    return subprocess.run([os.path.abspath(path()), *args], capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd)


class Server:
    """A running server; as a context manager it ends with SIGTERM and must exit with 0."""

    def __init__(self, *args, stderr=subprocess.PIPE, preexec_fn=None):
        self.process = subprocess.Popen(
            [path(), *args], stdout=subprocess.PIPE, stderr=stderr, text=True, stdin=subprocess.DEVNULL, preexec_fn=preexec_fn
        )
        self.line = self.process.stdout.readline()
        if not self.line:
            _, err = self.process.communicate(timeout=30)
            raise RuntimeError(f"reverie-server ended with {self.process.returncode}: {err}")
        match = re.search(r":(\d+)", self.line)
        self.port = int(match.group(1)) if match else None
        self.address = f"127.0.0.1:{self.port}"

    def signal(self, number):
        self.process.send_signal(number)

    def freeze(self):
        """Until SIGCONT, all of it: the signal goes to one thread, and the others serve until that one has run."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def wait(self, timeout=30):
        """Exit status and what it wrote to stderr."""
        _, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, err

    def end_after_reload(self):
        """The same, of one that reads its files again first."""
        self.signal(signal.SIGHUP)
        self.signal(signal.SIGTERM)  # comes after it
        return self.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate(timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.kill()
            return
        self.signal(signal.SIGTERM)
        try:
            status, err = self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert status == 0, err


def generate_stubs(folder):
    """Compiles proto/ with grpcio-tools and makes it importable; reverie.proto as reverie_protocol (`reverie` is the package)."""
    from grpc_tools import protoc

    if _generated:
        return
    sources, modules = folder / "proto", folder / "modules"
    modules.mkdir()
    for name in ("deepmind", "tensorflow"):
        shutil.copytree(ROOT / "proto" / name, sources / name)
    shutil.copytree(ROOT / "proto" / "reverie", sources / "reverie_protocol")
    protos = [str(p.relative_to(sources)) for p in sorted(sources.rglob("*.proto"))]
    well_known = str(pathlib.Path(protoc.__file__).parent / "_proto")
    arguments = ["protoc", f"-I{sources}", f"-I{well_known}", f"--python_out={modules}", f"--grpc_python_out={modules}", *protos]
    assert protoc.main(arguments) == 0
    sys.path.append(str(modules))
    _generated.append(modules)


def snappy_literal(data):
    """One raw snappy block that holds the data uncompressed."""
    out, n = bytearray(), len(data)
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    if data:
        out.append(63 << 2)  # a literal whose length has 4 bytes
        out += (len(data) - 1).to_bytes(4, "little") + data
    return bytes(out)


def channel(address):
    """A grpcio channel without bounds on messages."""
    return grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])


def health(address):
    """The health service's answer, as bytes."""
    with channel(address) as to:
        check = to.unary_unary("/grpc.health.v1.Health/Check")
        return check(b"", timeout=60, wait_for_ready=True)


def checkpoint_flags(folder, *more):
    return ["--port", "0", "--table", "name=t", "--checkpoints", str(folder), *more]


def disk_flags(folder, *more):
    """With a journal, too."""
    return checkpoint_flags(f"{folder}/c", "--journal", f"{folder}/j", *more)
