"""Logging in at a broker with users."""

import hashlib
import os

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import rbmq

TOKEN = "rbmq_" + "x" * 43


@pytest.fixture
def guarded(tmp_path):
    """A broker that knows one token."""
    users = tmp_path / "users.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    users.write_text(f'[[user]]\nname = "alice"\n[[token]]\nname = "t"\nuser = "alice"\nsha256 = "{digest}"\n')
    os.chmod(users, 0o600)
    config = tmp_path / "rbmq.toml"
    rule = '[[access.rules]]\nusers = ["*"]\npublish = ["#"]\nsubscribe = ["#"]\nobserve = true\n'
    config.write_text(f'[users]\nfile = "{users}"\n{rule}')
    with rbmq.Broker("127.0.0.1:0", config_file=config) as broker:
        yield broker


def test_a_token_gets_in(guarded):
    with rbmq.Subscriber(guarded.addr, token=TOKEN) as subscriber, rbmq.Publisher(guarded.addr, token=TOKEN) as publisher:
        subscriber.subscribe("news")
        with publisher.topic("news") as news:
            news.wait_subscribers(1, WAIT)
            news.publish(b"hello")
            assert bytes(subscriber.recv(WAIT)) == b"hello"
    with rbmq.Observer(guarded.addr, token=TOKEN) as observer:
        assert observer.summary()["observers"] == 1


def test_everybody_else_is_told_the_same(guarded):
    told = set()
    for login in ({}, {"token": "rbmq_wrong"}, {"user": "alice", "password": "guess"}, {"user": "eve", "password": "guess"}):
        with pytest.raises(rocketbufs.ConnectError) as refused:
            rbmq.Publisher(guarded.addr, **login)
        told.add(str(refused.value))
    assert len(told) == 1 and "not authenticated" in told.pop()


def test_a_login_is_complete_and_leaves_the_machine_encrypted_only():
    for login in ({"user": "alice"}, {"password": "p"}, {"user": "a", "password": "p", "token": "t"}):
        with pytest.raises(ValueError, match="a user and a password, or a token"):
            rbmq.Publisher("127.0.0.1:1", **login)
    with pytest.raises(rocketbufs.ConnectError, match="is not encrypted"):
        rbmq.Subscriber("192.0.2.1:7411", token="secret")
