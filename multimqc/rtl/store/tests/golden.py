"""The golden model of a topic's log, and of what the store may answer.

The log is a plain string of bytes. A response may depend on messages that were on their way when it was decided, so the model knows a
range for the head: what was surely stored when the request was taken, and what was offered when the response came.
"""

HIT, END, OVERWRITTEN = 0, 1, 2


class Log:
    """All bytes of a topic since it was opened at `start`."""

    def __init__(self, start=0):
        self.start = start
        self.bytes = bytearray()
        self.ends = {start}  # where messages end

    def append(self, message):
        """Adds a message."""
        self.bytes += message
        self.ends.add(self.head)

    @property
    def head(self):
        """The offset after the last byte."""
        return self.start + len(self.bytes)

    def at(self, offset, length):
        """The bytes of a range."""
        begin = offset - self.start
        return bytes(self.bytes[begin : begin + length])


class Request:
    """A read request, with the head that it surely sees, and the level that the log has for it."""

    def __init__(self, tag, topic, offset, length, log, surely):
        self.tag, self.topic, self.offset, self.length = tag, topic, offset, length
        self.log, self.surely = log, surely

    def check(self, response, keeps, alone=False):
        """Checks a response. `keeps`: the newest bytes that the levels must have; `alone`: level 2 answers without level 1, and may
        not have the newest bytes yet."""
        log, n = self.log, response.length
        said = f"{self.offset}+{self.length} of topic {self.topic}: {response}, head {self.surely}..{log.head}"
        assert response.tag == self.tag, f"tag {self.tag}: {said}"
        if response.status == HIT:
            assert 1 <= n <= self.length and len(response.data) == n, said
            assert response.offset == self.offset, said
            assert response.data == log.at(self.offset, n), f"other bytes: {said}"
            end = self.offset + n
            if n < min(self.length, 2047) and not alone:
                assert end >= self.surely and end in log.ends, f"too short: {said}"
            return
        assert n == 0 and response.data == b"", said
        if response.status == END:
            assert self.offset >= response.offset, said
            if not alone:
                assert response.offset >= self.surely and response.offset in log.ends, said
            assert response.offset <= log.head, said
        else:
            assert response.status == OVERWRITTEN and response.offset == self.offset, said
            assert self.offset + keeps < log.head, f"should be kept: {said}"


class Batches:
    """The host's side of a log: a place for each batch, and holes."""

    def __init__(self, log):
        self.log, self.at = log, log.start
        self.holes = self.hole_bytes = self.batches = 0

    def take(self, offset, length, data):
        """Checks and places a batch."""
        assert len(data) == length
        assert offset >= self.at, f"a batch at {offset}, below {self.at}"
        if length == 0:
            assert offset > self.at, f"an empty batch without a hole at {offset}"
            self.holes += 1
            self.hole_bytes += offset - self.at
        else:
            assert offset == self.at, f"a silent hole from {self.at} to {offset}"
            assert data == self.log.at(offset, length), f"other bytes in the batch at {offset}"
            self.batches += 1
        self.at = offset + length
