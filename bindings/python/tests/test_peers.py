"""A program's control of its peers: verified identities, admission to subscriptions, rate limits."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from conftest import WAIT, Ends

from rocketbufs import Admitted, Conn, Context, Listener, RateLimit, RIn, ROut


def test_the_process_of_a_peer_is_known(ends):
    e = ends({"transport": "shm"})
    for conn in (e.conn, Conn(e.context, e.listener.local_addr)):
        identity = conn.peer_identity
        assert identity.kind == "PeerIdentity" and identity.certificate is None and not identity.encrypted
        process = identity.process
        assert (process.pid, process.uid, process.gid) == (os.getpid(), os.geteuid(), os.getegid())


def test_over_tcp_nothing_is_known(ends):
    identity = ends().conn.peer_identity
    assert (identity.certificate, identity.process, identity.encrypted) == (None, None, False)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_a_certificate_is_known(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    extensions = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=test", "-keyout", key, "-out", cert]
    subprocess.run([*made, *(word for extension in extensions for word in ("-addext", extension))], check=True, capture_output=True)
    settings = {"mode": "require", "ca": str(cert), "cert": str(cert), "key": str(key)}
    with Context({"tls": settings}) as context, Listener(context, "127.0.0.1:0") as listener:
        out, seen = ROut(context), []

        def on_conn(conn):
            seen.append(conn.peer_identity)
            out.add_conn(conn)

        listener.set_conn_cb(on_conn)
        conn = Conn.start(context, listener.local_addr)
        up = conn.recv_event(WAIT)
        assert up.kind == "Up", up
        der = subprocess.run(["openssl", "x509", "-in", cert, "-outform", "DER"], check=True, capture_output=True).stdout
        identity = conn.peer_identity
        assert identity.encrypted and identity.certificate == der and identity.process is None
        assert seen[0].encrypted and seen[0].certificate is None
        listener.unset_conn_cb()


def refused(e, bid, **options):
    """Subscribes, and returns why it is refused."""
    e.input.subscribe(bid, 1 << 16, **options)
    event = e.input.recv(WAIT)
    assert event.kind == "Refused" and event.bid == bid, event
    return event.reason


def test_admission(ends):
    e = ends()
    e.out.create_buffer(8, 1 << 16)
    asked, allowed = [], {7: Admitted(["drop"], owner=3)}

    def decide(asking):
        asked.append((asking.kind, asking.bid, asking.name))
        return allowed.get(asking.bid)

    e.out.set_admission(decide)
    # A buffer that must not be read looks as if it did not exist.
    assert refused(e, 8) == refused(e, 9).replace("9", "8")
    assert "allowed: drop" in refused(e, 7)
    e.input.subscribe(7, 1 << 20, policy="drop", name="me", hold=1.0)
    assert e.input.recv(WAIT).kind == "Subscribed"
    # The third buffer does not exist, and nobody is asked.
    assert asked == [("Asking", 8, b""), ("Asking", 7, b""), ("Asking", 7, b"me")]
    allowed[7] = Admitted()
    e.out.review_admissions()
    e.buffer.append(b"still there")
    assert bytes(e.input.recv(WAIT)) == b"still there"
    allowed.clear()
    e.out.review_admissions()
    while (event := e.input.recv(WAIT)) is not None and getattr(event, "kind", "") != "Refused":
        event.consume()
    assert event is not None and event.bid == 7
    e.out.unset_admission()
    e.subscribe()


def test_an_exception_refuses(ends, monkeypatch):
    e = ends()
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(raised.exc_value))
    for answer in (lambda asking: 1 / 0, lambda asking: True):
        e.out.set_admission(answer)
        e.input = RIn(conn := Conn(e.context, e.listener.local_addr))
        e.input.subscribe(7, 1 << 20)
        assert conn.wait_down(WAIT) is not None and e.buffer.subscriber_count == 0
    assert [type(error) for error in told] == [ZeroDivisionError, TypeError]
    assert "Admitted or None, not True" in str(told[1])
    with pytest.raises(ValueError, match="policy"):
        Admitted(["wait"])
    assert Admitted(["drop", "block"]).policies == ["block", "drop"] and Admitted(owner=5).owner == 5


def test_rate_limits():
    slow, arriving = RateLimit(200_000, 1), RateLimit(1, 1 << 20)
    assert (slow.bytes_per_second, slow.burst_bytes, slow.bytes, slow.delayed, slow.in_use) == (200_000, 4096, 0, 0.0, False)
    e = Ends()

    def limited(conn):
        conn.set_rate_limits(sent=[slow])
        e.out.add_conn(conn)

    e.listener.set_conn_cb(limited)
    e.conn = Conn(e.context, e.listener.local_addr)
    e.conn.set_rate_limits(received=(arriving,))
    e.input = RIn(e.conn)
    e.subscribe()
    assert e.context.is_rate_limit_full(RateLimit(5, 5))
    for _ in range(8):
        e.buffer.append(bytes(4096))
    got = 0
    while got < 8 * 4096:
        with e.input.recv(WAIT) as view:
            got += len(view)
    while slow.bytes != got or arriving.bytes != got:
        time.sleep(0.001)
    assert slow.delayed > 0 and slow.in_use and arriving.delayed == 0
    assert not e.context.is_rate_limit_full(arriving)
    slow.set(0, 8192)
    assert repr(slow) == "RateLimit(0, 8192)"
    e.conn.set_rate_limits()
    for wrong in ({"sent": 5}, {"sent": [5]}, {"received": [None]}):
        with pytest.raises(TypeError):
            e.conn.set_rate_limits(**wrong)
    e.listener.unset_conn_cb()
    e.listener.close()
    e.context.shutdown(0)
