"""The laptop's real Kafka and etcd: start, stop, restart with the data kept, and what they say when they cannot."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import etcd3
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local.errors import LocalError
from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from deploy.local.processes import is_running
from deploy.local.server import LocalServer
from tests.conftest import stop_another

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
each_kind = pytest.mark.parametrize("kind", [KafkaBroker, EtcdServer])
quick_kind = pytest.mark.parametrize("kind", [pytest.param(KafkaBroker, marks=pytest.mark.long), EtcdServer])
"""What both do by one piece of code: etcd shows it in a moment, and Kafka, which takes seconds for each start, in `make test-long`."""


def write(server: LocalServer, value: str) -> None:
    """Put one value into the server, acknowledged."""
    if isinstance(server, KafkaBroker):
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(LIMIT_S)
        producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
        producer.produce("kept", value.encode())
        assert producer.flush(LIMIT_S) == 0
    else:
        client(server).put("/kept", value)


def read(server: LocalServer) -> str | None:
    """The value that ``write`` put; None if there is none."""
    if isinstance(server, EtcdServer):
        value = client(server).get("/kept")[0]
        return value and value.decode()
    if "kept" not in AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=LIMIT_S).topics:
        return None
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("kept", 0, 0)])
    record = consumer.poll(LIMIT_S)
    consumer.close()
    return record.value().decode()


def client(server: EtcdServer) -> Any:
    host, port = server.endpoint.split(":")
    return etcd3.client(host, int(port))


def refusal(server: LocalServer) -> LocalError:
    with pytest.raises(LocalError) as error:
        server.start()
    assert not server.running
    return error.value


def starter(kind: type[LocalServer], folder: Path) -> subprocess.Popen[str]:
    """Another process that starts a server, prints what the server says of itself, then its pid, then waits."""
    code = f"""
import time
from {kind.__module__} import {kind.__name__}
server = {kind.__name__}({str(folder)!r})
server.start(lambda line: print(line, flush=True))
print(server.pid, flush=True)
time.sleep(600)
"""
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def pid_said_by(process: subprocess.Popen[str]) -> int:
    return next(int(line) for line in process.stdout if line.strip().isdigit())


@each_kind
def test_restart_keeps_data_and_address(kind, tmp_path):
    server = kind(tmp_path / "data")
    said: list[str] = []
    server.start(said.append)
    first = psutil.Process(server.pid)
    ports = dict(server.ports)
    assert said[-1] == f"{server.NAME}: ready on port {ports[server.PORT_NAMES[0]]}"
    write(server, "a")
    server.stop()
    assert not is_running(first)
    assert not server.running

    again = kind(tmp_path / "data")
    with again:
        assert again.ports == ports
        assert read(again) == "a"
        listening = {c.laddr for c in psutil.Process(again.pid).net_connections("tcp") if c.status == "LISTEN"}
        assert {(address.ip.removeprefix("::ffff:"), address.port) for address in listening} == {
            ("127.0.0.1", port) for port in ports.values()
        }
    again.stop()  # twice is nothing


@quick_kind
def test_two_side_by_side(kind, tmp_path):
    with kind(tmp_path / "one") as one, kind(tmp_path / "two") as two:
        assert set(one.ports.values()).isdisjoint(two.ports.values())
        write(one, "a")
        assert (read(one), read(two)) == ("a", None)


@quick_kind
def test_chosen_ports_are_taken(kind, tmp_path):
    with kind(tmp_path / "one"):
        pass
    remembered = kind(tmp_path / "one").meta()["ports"]
    name = kind.PORT_NAMES[0]
    with kind(tmp_path / "two", {name: remembered[name]}) as server:
        assert server.ports[name] == remembered[name]
    with pytest.raises(ValueError, match=r"has no port \['web'\]"):
        kind(tmp_path / "two", {"web": 1})


@quick_kind
def test_new_ports_after_meta_was_deleted(kind, tmp_path):
    with kind(tmp_path / "data") as server:
        write(server, "a")
    (tmp_path / "data" / "meta.json").unlink()
    with kind(tmp_path / "data") as again:
        assert again.ports != server.ports
        assert read(again) == "a"


@quick_kind
def test_a_killed_server_comes_back_with_its_data(kind, tmp_path):
    server = kind(tmp_path / "data")
    server.start()
    write(server, "a")
    os.kill(server.pid, signal.SIGKILL)
    server.child.popen.wait(LIMIT_S)
    assert not server.running
    server.stop()
    with kind(tmp_path / "data") as again:
        assert read(again) == "a"


@quick_kind
def test_start_twice_is_once(kind, tmp_path):
    with kind(tmp_path / "data") as server:
        pid = server.pid
        server.start()
        assert server.pid == pid
        said = str(refusal(kind(tmp_path / "data")))
        assert said == (
            f"{server.NAME} is already started on {tmp_path / 'data'} (process {pid}): stop it or choose another folder."
        )
        assert server.running


@each_kind
def test_a_taken_port_is_told_with_its_owner(kind, tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        me = f"{psutil.Process().name()} (process {os.getpid()})"
        server = kind(tmp_path / "given", {kind.PORT_NAMES[0]: port})
        taken = f"Port {port}, which {server.NAME} is to listen on, is taken by {me}: end that process, or "
        assert str(refusal(server)) == taken + "choose another port."
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "meta.json").write_text(json.dumps({"ports": {kind.PORT_NAMES[1]: port}}))
        said = str(refusal(kind(tmp_path / "kept")))
        assert said == taken + f"delete {tmp_path / 'kept' / 'meta.json'} to have another port chosen."


@each_kind
def test_a_port_taken_in_the_last_moment(kind, tmp_path, monkeypatch):
    """Free when we looked, taken when the server listens: the server's own words are understood."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        server = kind(tmp_path / "data", {name: port for name in kind.PORT_NAMES[:1]})
        looks = iter([True])
        from deploy.local import server as module

        real = module.port_is_free
        monkeypatch.setattr(module, "port_is_free", lambda each: next(looks, False) if each == port else real(each))
        monkeypatch.setattr(type(server), "is_ready", lambda _: False)  # the other listener is not this server
        error = refusal(server)
    assert str(error).startswith(f"Port {port}, which {server.NAME} is to listen on, is taken by ")
    assert "ddress already in use" in error.detail


def first_choice(monkeypatch, place: int, port: int, times: int = 1) -> list[int]:
    """The first choices of a start's port at `place` are `port`, as if it were free by then. Returns all choices, as they come."""
    from deploy.local import server as module

    real, choices, left = module.free_port, [], [times]

    def choose(taken=()):
        at_place = len(list(taken)) == place
        left[0] -= at_place
        choices.append(port if at_place and left[0] >= 0 else real(taken))
        return choices[-1]

    monkeypatch.setattr(module, "free_port", choose)
    return choices


@quick_kind
@pytest.mark.parametrize("place", [0, 1])
def test_a_port_that_it_chose_and_another_took_is_chosen_again(kind, place, tmp_path, monkeypatch):
    """Another server of its kind has it: it would answer in its place."""
    with kind(tmp_path / "one") as one:
        lost = one.ports[kind.PORT_NAMES[place]]
        choices, said = first_choice(monkeypatch, place, lost), []
        server = kind(tmp_path / "two")
        server.start(said.append)
        try:
            assert choices[place] == lost and list(server.ports.values()) == choices[2:]
            assert server.meta()["ports"] == server.ports
            assert f"{kind.NAME}: another process took a port that was chosen; choosing again" in said
            write(server, "a")
            assert (read(server), read(one)) == ("a", None)
        finally:
            server.stop()


@quick_kind
@pytest.mark.parametrize("place", [0, 1])
def test_a_port_is_chosen_again_a_few_times_and_beside_one_that_is_wanted_and_taken_never(kind, place, tmp_path, monkeypatch):
    from deploy.local import server as module

    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 'bind: address already in use'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(kind, "command", lambda *_: ([str(program)], dict(os.environ)))
    monkeypatch.setattr(kind, "is_ready", lambda _: False)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        lost = holder.getsockname()[1]
        choices = first_choice(monkeypatch, place, lost, times=module.CHOICES_MOST)
        server = kind(tmp_path / "data")
        said = str(refusal(server))
        assert said.startswith(f"Port {lost}, which {server.NAME} is to listen on, is taken by ")
        assert said.endswith(": end that process, or start again.")
        assert choices.count(lost) == module.CHOICES_MOST == len(choices) / 2
        assert "ports" not in server.meta(), "the next start would insist on it"
        choices.clear()
        looks, free = iter([True]), module.port_is_free
        monkeypatch.setattr(module, "port_is_free", lambda port: next(looks, False) if port == lost else free(port))
        wanted = kind(tmp_path / "wanted", {kind.PORT_NAMES[place]: lost})
        assert str(refusal(wanted)).startswith(f"Port {lost}, which {server.NAME} is to listen on, is taken by ")
        assert len(choices) == 1


@quick_kind
def test_no_orphan_when_the_starter_is_killed(kind, tmp_path):
    parent = starter(kind, tmp_path / "data")
    left = psutil.Process(pid_said_by(parent))
    assert is_running(left)
    parent.kill()
    parent.wait(LIMIT_S)
    with kind(tmp_path / "data") as server:  # at once: waits for the old one or ends it
        assert not is_running(left)
        assert server.ports == server.meta()["ports"]


@pytest.mark.long
@quick_kind
def test_what_an_earlier_run_left_behind_is_ended(kind, tmp_path):
    parent = starter(kind, tmp_path / "data")
    left = psutil.Process(pid_said_by(parent))
    stop_another(left)  # so that it cannot follow the signal that its parent's death sends
    parent.kill()
    parent.wait(LIMIT_S)
    assert is_running(left)
    said: list[str] = []
    server = kind(tmp_path / "data")
    server.start(said.append)
    assert f"{server.NAME}: ending process {left.pid}, which an earlier run left behind" in said
    assert not is_running(left)
    server.stop()


@quick_kind
def test_another_process_with_the_recorded_id_is_left_alone(kind, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.json").write_text(json.dumps({"pid": os.getpid(), "created": 1.0, "ports": {}}))
    with kind(tmp_path / "data") as server:
        assert server.running


@quick_kind
def test_ctrl_c_while_it_starts_leaves_nothing(kind, tmp_path):
    parent = starter(kind, tmp_path / "data")
    next(line for line in parent.stdout if ": starting on port " in line)
    family = psutil.Process(parent.pid).children(recursive=True)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(LIMIT_S) != 0
    psutil.wait_procs(family, timeout=LIMIT_S)
    assert not any(is_running(process) for process in family)


@each_kind
def test_too_little_space(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(kind, "LEAST_FREE_MB", 10**9)
    server = kind(tmp_path / "data")
    said = str(refusal(server))
    assert said.startswith(f"The disk of {tmp_path / 'data'} has ")
    assert said.endswith(
        f" MB free and {server.NAME} needs 1000000000: free some space, or choose a folder on another disk."
    )


@each_kind
def test_a_folder_that_cannot_be(kind, tmp_path):
    (tmp_path / "file").write_text("")
    assert str(refusal(kind(tmp_path / "file" / "data"))) == f"{tmp_path / 'file' / 'data'} cannot be used: Not a directory."


@each_kind
def test_a_folder_of_somebody_else(kind, tmp_path):
    tmp_path.chmod(0o500)
    me = os.geteuid()
    if me == 0:  # may write everywhere: be nobody for a moment
        os.seteuid(65534)
    try:
        said = str(refusal(kind(tmp_path / "data")))
    finally:
        os.seteuid(me)
    assert said == f"No permission to write below {tmp_path / 'data'}: make it yours, or choose another folder."


@each_kind
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("java.io.IOException: No space left on device", "The disk of {} is full: free some space, or choose a folder on"),
        ("java.nio.file.AccessDeniedException: /x", "No permission to write below {}: make it yours, or choose"),
        ("panic: write /x: no space left on device", "The disk of {} is full: free some space, or choose a folder on"),
        ("open /x: permission denied", "No permission to write below {}: make it yours, or choose another folder."),
        ("Could not reserve enough space for 1g object heap", "There is too little memory for "),
        ("something new", "{} ended with exit code 1 while it started: see "),
    ],
)
def test_the_last_words_of_a_server_as_a_sentence(kind, words, sentence, tmp_path, monkeypatch):
    """The process is a real one that says the words, with a stack below them, and fails."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{words}'\nseq 100 | sed s/^/frame/\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(kind, "command", lambda *_: ([str(program)], dict(os.environ)))
    monkeypatch.setattr(kind, "is_ready", lambda _: False)
    server = kind(tmp_path / "data")
    error = refusal(server)
    assert str(error).startswith(sentence.format(server.NAME if "ended" in sentence else tmp_path / "data"))
    assert error.detail.endswith("frame99\nframe100")
