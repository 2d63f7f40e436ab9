"""The programs of the guide and of the README run as they are printed."""

import asyncio
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import time

import pytest
from conftest import own_addr

import rocketbufs
from rocketbufs import rbmq

ROOT = pathlib.Path(__file__).parents[3]


def programs(name):
    text = (ROOT / name).read_text()
    return [textwrap.dedent(found) for found in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


@pytest.fixture
def names(tmp_path):
    """The objects that the shorter programs take for granted, at a broker of their own."""
    rules = "".join(f"[[broker.topics]]\npattern = '{topic}'\nkeep = true\n" for topic in ("orders", "failed/orders"))
    rules += "[[broker.topics]]\npattern = 'devices/#'\nspace = true\n"
    (tmp_path / "rbmq.toml").write_text(f"[broker]\nkeep_dir = '{tmp_path}/kept'\n{rules}")
    with rbmq.Broker("127.0.0.1:0", config_file=tmp_path / "rbmq.toml") as other:
        publisher, subscriber = rbmq.Publisher(other.addr), rbmq.Subscriber(other.addr)
        news = publisher.topic("news")
        subscriber.subscribe("news")
        news.wait_subscribers(1, 20)
        orders = publisher.topic("orders", ring_bytes=1 << 16)
        orders.publish_many([b"7,socks", b"socks"])
        orders.confirm(None, "stored", 20)
        publisher.topic("failed/orders", ring_bytes=1 << 16).close()
        yield {"kept": other.addr, "news": news, "publisher": publisher, "subscriber": subscriber, "total": 0, "rocketbufs": rocketbufs}
        subscriber.close(1)


GUIDE = programs("docs/PYTHON.md")
# The one that needs a broker with TLS and users.
(SECURE,) = [program for program in GUIDE if "tls.mode" in program]


@pytest.mark.parametrize("number", [number for number, program in enumerate(GUIDE) if program is not SECURE])
def test_the_guide(broker, names, number):
    addr = names["kept"] if "GroupWorker" in GUIDE[number] else broker.addr
    program = GUIDE[number].replace("127.0.0.1:7411", addr)
    exec(program, names)
    if "main" in names:
        asyncio.run(asyncio.wait_for(names["main"](), 20))


def test_the_readme(broker, capsys):
    (program,) = programs("README.md")
    exec(program.replace("127.0.0.1:7411", broker.addr), {})
    assert capsys.readouterr().out == "b'hello'\n"


# Of "correct horse", by rbmq passwd.
PASSWORD = "$argon2id$v=19$m=19456,t=2,p=1$y68o2Sawt4jNUNAXYFUGfA$NhOYj63IlUiMxFxfVlDIkY/knr8/nlgWw6nK90USJ2o"
# What nats-py needs for the same: a context of ssl, a coroutine with its callback, and a loop that runs them.
LINES_OF_NATS = 9


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_tls_a_login_and_a_callback_in_few_lines(tmp_path, monkeypatch):
    """As printed, while the broker is restarted."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "ca.pem"]
    subprocess.run(made, check=True, capture_output=True, cwd=tmp_path)
    users, config = tmp_path / "users.toml", tmp_path / "rbmq.toml"
    users.write_text(f'[[user]]\nname = "anna"\npassword = "{PASSWORD}"\n')
    os.chmod(users, 0o600)
    config.write_text(
        f'[tls]\nmode = "require"\ncert = "{tmp_path}/ca.pem"\nkey = "{tmp_path}/key.pem"\n[users]\nfile = "{users}"\n'
        '[[access.rules]]\nusers = ["*"]\npublish = ["#"]\nsubscribe = ["#"]\n'
    )
    monkeypatch.chdir(tmp_path)
    broker = rbmq.Broker(own_addr(), config_file=config)
    addr, printed = broker.addr, []
    publisher = rbmq.Publisher(addr, config={"tls": {"mode": "require", "ca": "ca.pem"}}, user="anna", password="correct horse")
    news = publisher.topic("news")

    def arrives(message):
        until = time.monotonic() + 20
        while message not in printed:
            assert time.monotonic() < until
            news.publish(message)
            time.sleep(0.01)

    def until_enter(_):
        nonlocal broker
        arrives(b"one")
        broker.stop()
        broker = rbmq.Broker(addr, config_file=config)
        arrives(b"two")

    names = {"password": "correct horse", "input": until_enter, "print": printed.extend}
    exec(SECURE.replace("broker.example:7411", addr), names)
    assert len([line for line in SECURE.splitlines() if line.strip()]) <= LINES_OF_NATS
    for client in (names["subscriber"], publisher, broker):
        client.__exit__(None, None, None)
