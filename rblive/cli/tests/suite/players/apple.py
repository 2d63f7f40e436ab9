"""Follows the playlists of a live stream, and checks the rules for them: RFC 8216bis, and Apple's "HLS Authoring Specification".

The parser is the package m3u8 of PyPI, and the requests are Python's, so that nothing here is of the project under test.

    apple.py [--picture 320x180@25] [--removals N] [--variants N] URL SECONDS

Follows the first variant of the stream for SECONDS seconds of media, and until N segments were removed and kept for as long as they must be.
Exits with 1 and a list of what is wrong.
"""

import argparse
import datetime
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import m3u8

# A machine may stand still for long.
PATIENCE = 240
# The node makes its certificate itself.
TRUST = ssl._create_unverified_context()


class Wrong(Exception):
    """A rule that does not hold."""


def need(holds, rule, *values):
    if not holds:
        raise Wrong(f"{rule}: {values}")


def get(url):
    """The status and the body."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE, context=TRUST) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def playlist(url):
    status, body = get(url)
    need(status == 200, "a playlist is there", url, status, body)
    text = body.decode("utf-8")
    need(text.startswith("#EXTM3U\n"), "4.1: the first line", text[:20])
    return m3u8.loads(text, uri=url)


def us(seconds):
    return round(seconds * 1_000_000)


def multivariant(url, picture, variants):
    """Checks the multivariant playlist, and returns the addresses of its variants and the attributes of the first one."""
    main = playlist(url)
    # Whether segments are independent is said by the playlists of media, since it may change.
    need(main.is_variant, "the playlist of variants", url)
    need(len(main.playlists) == variants, "the variants", len(main.playlists))
    for own in main.playlists:
        about = own.stream_info
        for name in ("bandwidth", "average_bandwidth", "codecs", "resolution", "frame_rate"):
            need(getattr(about, name), f"Apple: a variant with pictures has {name.upper()}", vars(about))
        need(about.average_bandwidth <= about.bandwidth, "4.4.6.2: the average is not above the peak", vars(about))
        need("avc1." in about.codecs, "4.4.6.2: all codecs are named", about.codecs)
    about = main.playlists[0].stream_info
    need("mp4a.40.2" in about.codecs, "4.4.6.2: all codecs are named", about.codecs)
    if picture:
        size, rate = picture.split("@")
        need("x".join(map(str, about.resolution)) == size, "4.4.6.2: RESOLUTION is that of the picture", about.resolution)
        need(about.frame_rate == float(rate), "4.4.6.2: FRAME-RATE is that of the picture", about.frame_rate)
    return [own.absolute_uri for own in main.playlists], about


def aligned(urls):
    """6.2.4: the variants have the same content at the same time. Returns how many segments were compared."""
    first, *others = [Media(url) for url in urls]
    compared = 0
    for other in others:
        need(other.target == first.target, "6.2.4: one target duration", first.target, other.target)
        for number in first.whole.keys() & other.whole.keys():
            (_, own, breaks, _, date, _), (_, their, their_breaks, _, their_date, _) = first.whole[number], other.whole[number]
            need(breaks == their_breaks, "6.2.4: one discontinuity sequence", number, breaks, their_breaks)
            apart = abs((date - their_date).total_seconds())
            need(apart < 0.06 and abs(own - their) < 60_000, "6.2.4: segments of one time", number, apart, own, their)
            compared += 1
        need(abs(first.edge() - other.edge()) <= 1, "6.2.4: the edges are together", first.edge(), other.edge())
    return compared


class Media:
    """A media playlist, as far as the rules are about it. A delta update follows the playlist `base`."""

    def __init__(self, url, base=None):
        self.list = playlist(url)
        own = self.list
        self.target, self.control = own.target_duration, own.server_control
        self.low_latency = bool(self.control and self.control.part_hold_back)
        self.skipped = own.skip.skipped_segments if own.skip else 0
        self.sequence, self.breaks = own.media_sequence, own.discontinuity_sequence or 0
        self.whole = {}
        self.parts = {}
        number, breaks, at = self.sequence + self.skipped, self.breaks, None
        if self.skipped:
            _, _, breaks, at, *_ = base.whole[number - 1]
        for segment in own.segments:
            breaks += bool(segment.discontinuity)
            at = segment.init_section.uri if segment.init_section else at
            if segment.uri:
                date = segment.program_date_time
                self.whole[number] = (segment.uri, us(segment.duration), breaks, at, date, bool(segment.gap_tag))
            self.parts[number] = [(part.uri, us(part.duration), part.independent == "YES") for part in segment.parts]
            number += 1
        self.check()
        if self.low_latency:
            self.check_low_latency()

    def edge(self):
        """The number after that of the last whole segment."""
        return max(self.whole, default=self.sequence - 1) + 1

    def length(self):
        return sum(segment[1] for segment in self.whole.values())

    def next_part(self):
        """The segment and the part that come next."""
        last = max(self.parts)
        return (last, len(self.parts[last])) if last not in self.whole else (last + 1, 0)

    def check(self):
        need(self.whole, "there are segments")
        need(self.list.is_independent_segments, "Apple: independent segments are announced")
        need(int(self.list.version) >= 6, "7: EXT-X-MAP needs version 6", self.list.version)
        need(not self.list.is_endlist, "the stream lives")
        before = None
        for number, (uri, own, breaks, at, date, _) in sorted(self.whole.items()):
            need(round(own / 1_000_000) <= self.target, "4.4.3.1: no segment is longer than the target", uri, own)
            need(at, "4.4.4.5: EXT-X-MAP before fragmented MP4", uri)
            need(date, "Apple: EXT-X-PROGRAM-DATE-TIME of each segment", uri)
            now = datetime.datetime.now(datetime.timezone.utc)
            need(date <= now, "4.4.4.6: a segment is not of the future", uri, date)
            if before and before[1] == breaks:
                apart = (date - before[2]).total_seconds() - before[0] / 1_000_000
                need(abs(apart) < 0.1, "4.4.4.6: dates go on as the segments do", uri, apart)
            before = (own, breaks, date)

    def check_low_latency(self):
        control, most = self.control, us(self.list.part_inf.part_target)
        need(control.can_block_reload == "YES", "B.1: CAN-BLOCK-RELOAD")
        need(us(control.part_hold_back) >= 3 * most, "4.4.3.8: PART-HOLD-BACK should be three part targets")
        need(control.hold_back >= 3 * self.target, "4.4.3.8: HOLD-BACK is three target durations")
        need(control.can_skip_until >= 6 * self.target, "4.4.3.8: CAN-SKIP-UNTIL is six target durations")
        need(not self.skipped or int(self.list.version) >= 9, "7: EXT-X-SKIP needs version 9")
        for number, parts in self.parts.items():
            for index, (uri, own, independent) in enumerate(parts):
                need(own <= most, "4.4.4.9: no part is longer than the target", uri, own, most)
                is_last = index + 1 == len(parts)
                need(is_last or own >= 0.85 * most, "4.4.3.7: a part has 85% of the target", uri, own, most)
                need(index > 0 or independent, "a segment begins with an independent part", uri)
            if parts and number in self.whole:
                sum_us = sum(part[1] for part in parts)
                need(abs(sum_us - self.whole[number][1]) <= len(parts), "4.4.4.9: parts are all of their segment", number)
                behind = sum(own[1] for later, own in self.whole.items() if later > number)
                need(behind <= us(3 * self.target), "4.4.4.9: parts are near the edge only", number, behind)
        hint = self.list.preload_hint
        need(hint and hint.hint_type == "PART", "4.4.5.3: a hint of the next part")
        listed = [part[0] for parts in self.parts.values() for part in parts]
        need(hint.uri not in listed, "4.4.5.3: the hint is not yet listed", hint.uri)

    def check_after(self, old):
        need(self.sequence >= old.sequence, "6.2.2: the media sequence does not go back", old.sequence, self.sequence)
        need(self.breaks >= old.breaks, "6.2.2: the discontinuity sequence does not go back", old.breaks, self.breaks)
        need(self.target == old.target, "6.2.1: the target duration does not change", old.target, self.target)
        need(self.edge() >= old.edge(), "6.2.1: segments are removed at the beginning alone", old.edge(), self.edge())
        for number in self.whole.keys() & old.whole.keys():
            need(self.whole[number] == old.whole[number], "6.2.1: what is listed stays as it is", old.whole[number])
        for number in self.parts.keys() & old.parts.keys():
            had, has = old.parts[number], self.parts[number]
            need(not has or has[: len(had)] == had, "6.2.1: parts are only appended", had, has)
        if self.sequence > old.sequence and not self.skipped:
            need(self.length() >= us(3 * self.target), "6.2.2: three target durations stay", self.length())
            need(len(self.whole) >= 6, "Apple: six segments stay", len(self.whole))


class Follower:
    """A player that looks at everything."""

    def __init__(self, url, wanted):
        self.url, self.wanted = url, wanted
        self.now = Media(url)
        self.longest, self.sizes, self.removed, self.kept = 0, {}, {}, 0
        self.seen_us = 0

    def follow(self):
        """Reads the next playlist, and all that it says is new."""
        old, query = self.now, ""
        if old.low_latency:
            number, part = old.next_part()
            query = f"?_HLS_msn={number}&_HLS_part={part}"
        else:
            time.sleep(old.target / 2)
        self.now = Media(self.url + query)
        self.now.check_after(old)
        if query:
            need(self.now.next_part() > (number, part), "6.2.5.2: the answer has what it was asked for", number, part)
        self.longest = max(self.longest, self.now.length())
        for number in range(max(old.edge(), self.now.sequence), self.now.edge()):
            uri, own, *_, gap = self.now.whole[number]
            status, body = get(urllib.parse.urljoin(self.url, uri))
            need(status == 200 and not gap, "6.2.1: what is listed is there", uri, status, gap)
            self.sizes[number] = (len(body), own)
            self.seen_us += own
        for number in old.whole.keys():
            if number < self.now.sequence:
                self.removed[number] = (self.seen_us, old.whole[number])
        if self.now.edge() > old.edge():
            self.look_at_removed()

    def look_at_removed(self):
        """6.2.2: a removed segment stays for its duration and that of the longest playlist. The time is the stream's."""
        for number, (since, (uri, own, *_)) in list(self.removed.items()):
            status, _ = get(urllib.parse.urljoin(self.url, uri))
            if status != 200:
                self.seen_us += sum(own[1] for later, own in Media(self.url).whole.items() if later >= self.now.edge())
                need(self.seen_us - since >= own + self.longest, "6.2.2: a removed segment stays", uri, self.seen_us - since, self.longest)
            if self.seen_us - since >= own + self.longest:
                self.kept += 1
                del self.removed[number]

    def skip(self):
        """A delta update has what the whole playlist has (6.2.5.1)."""
        if not self.now.low_latency:
            return 0
        delta = Media(self.url + "?_HLS_skip=YES", self.now)
        delta.check_after(self.now)
        behind = sum(own[1] for own in delta.whole.values())
        need(not delta.skipped or behind >= us(self.now.control.can_skip_until), "6.2.5.1: the skip boundary", behind)
        need(delta.edge() == delta.sequence + delta.skipped + len(delta.whole), "6.2.5.1: all segments count", delta.skipped)
        return delta.skipped

    def rates(self):
        """The largest and the average rate of segments, in bits per second."""
        rates = [size * 8_000_000 / own for size, own in self.sizes.values()]
        total = sum(size for size, _ in self.sizes.values())
        return max(rates), total * 8_000_000 / sum(own for _, own in self.sizes.values())


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--picture")
    arguments.add_argument("--removals", type=int, default=0)
    arguments.add_argument("--variants", type=int, default=1)
    arguments.add_argument("url")
    arguments.add_argument("seconds", type=int)
    given = arguments.parse_args()
    variants, _ = multivariant(given.url, given.picture, given.variants)
    follower, until = Follower(variants[0], given.removals), time.monotonic() + PATIENCE
    skipped = compared = 0
    while follower.seen_us < us(given.seconds) or follower.kept < given.removals:
        need(time.monotonic() < until, "the stream goes on", follower.seen_us, follower.kept, len(follower.removed))
        follower.follow()
        skipped = max(skipped, follower.skip())
        compared += aligned(variants)
    need(compared or given.variants == 1, "variants have segments in common")
    peak, average = follower.rates()
    # The rate of a segment is known when the next one begins.
    edge = follower.now.edge()
    while follower.now.edge() == edge:
        need(time.monotonic() < until, "the stream goes on", edge)
        follower.follow()
    _, about = multivariant(given.url, given.picture, given.variants)
    need(peak <= about.bandwidth, "4.4.6.2: no segment has a higher rate than BANDWIDTH", peak, about.bandwidth)
    need(about.bandwidth <= 2 * peak, "4.4.6.2: BANDWIDTH is that of segments", peak, about.bandwidth)
    share = about.average_bandwidth / average
    need(0.67 < share < 1.5, "4.4.6.2: AVERAGE-BANDWIDTH is the average", average, about.average_bandwidth)
    print(
        f"{follower.seen_us / 1_000_000:.1f} s: {len(follower.sizes)} segments, {skipped} skipped at most, {follower.kept} removed and "
        f"kept; {peak / 1000:.0f} kbit/s at most ({about.bandwidth / 1000:.0f}), {average / 1000:.0f} on average "
        f"({about.average_bandwidth / 1000:.0f})"
    )


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"{wrong}")
