"""The programs of the guide and of the README run as they are printed."""

import asyncio
import pathlib
import re
import textwrap

import pytest

import rocketbufs
from rocketbufs import rbmq

ROOT = pathlib.Path(__file__).parents[3]


def programs(name):
    text = (ROOT / name).read_text()
    return [textwrap.dedent(found) for found in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


@pytest.fixture
def names():
    """The objects that the shorter programs take for granted, at a broker of their own."""
    with rbmq.Broker("127.0.0.1:0") as other:
        publisher, subscriber = rbmq.Publisher(other.addr), rbmq.Subscriber(other.addr)
        news = publisher.topic("news")
        subscriber.subscribe("news")
        news.wait_subscribers(1, 20)
        yield {"news": news, "subscriber": subscriber, "total": 0, "rocketbufs": rocketbufs}
        subscriber.close(1)


@pytest.mark.parametrize("number", range(len(programs("docs/PYTHON.md"))))
def test_the_guide(broker, names, number):
    program = programs("docs/PYTHON.md")[number].replace("127.0.0.1:7411", broker.addr)
    exec(program, names)
    if "main" in names:
        asyncio.run(asyncio.wait_for(names["main"](), 20))


def test_the_readme(broker, capsys):
    (program,) = programs("README.md")
    exec(program.replace("127.0.0.1:7411", broker.addr), {})
    assert capsys.readouterr().out == "b'hello'\n"
