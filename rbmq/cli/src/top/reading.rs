//! The samples that `rbmq top` takes of a broker, and their output as text and JSON.

use std::time::{Duration, Instant};

use commands::terminal;
use rbmq::{
    BrokerSummary, BufferDetail, GatewayStats, GroupStats, LimitStats, ObserveError, Observer, TopicDetail,
    TopicFilter, TopicName, TopicStats,
};
use serde_json::{Value, json};

use super::picture::{Rates, legend, picture, title};
use super::table::{Before, Line, Sort, before, lines, table, table_from};
use super::text;
use super::{gateways, groups};
use crate::bytes;

/// The time for the answers of the subscribers to the broker.
const ANSWERS: Duration = Duration::from_millis(20);
/// The most topics for which a sample is taken twice. With more topics, the next sample shows the answers of the subscribers.
const MAX_TWICE: usize = 1000;

/// The subject of the samples.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// The table of the topics that the filter matches; none: all topics.
    Topics(Option<TopicFilter>, Sort),
    /// The rings of one topic.
    Topic(TopicName),
}

/// A sample of the broker's state.
pub(super) struct Reading {
    at: Instant,
    pub(super) summary: BrokerSummary,
    /// The users and addresses at or near a limit.
    pub(super) limits: Vec<LimitStats>,
    pub(super) gateways: Vec<GatewayStats>,
    pub(super) groups: Vec<GroupStats>,
    what: What,
}

/// A rate of the broker since the former sample.
pub(super) fn rate_of(now: &Reading, old: Option<&Reading>, of: fn(&BrokerSummary) -> u64) -> Option<f64> {
    text::rate(of(&now.summary), old.map(|old| of(&old.summary)), now.since(old))
}

enum What {
    Topics(Vec<TopicStats>),
    Topic(TopicDetail),
}

impl Subject {
    /// Takes a sample. The broker asks its subscribers for their positions at each request, so a small sample is taken twice and
    /// shows their answers.
    pub(super) fn read(&self, observer: &mut Observer) -> Result<Reading, ObserveError> {
        let first = self.what(observer)?;
        let small = !matches!(&first, What::Topics(topics) if topics.len() > MAX_TWICE);
        let what = if small {
            std::thread::sleep(ANSWERS);
            self.what(observer)?
        } else {
            first
        };
        let (summary, limits) = (observer.summary()?, observer.limits()?);
        let (gateways, groups) = (observer.gateways()?, observer.groups()?);
        Ok(Reading { at: Instant::now(), summary, limits, gateways, groups, what })
    }

    fn what(&self, observer: &mut Observer) -> Result<What, ObserveError> {
        Ok(match self {
            Self::Topics(filter, _) => What::Topics(observer.topics(filter.as_ref())?),
            Self::Topic(topic) => What::Topic(observer.topic(topic)?),
        })
    }
}

impl Reading {
    /// Whether the topic does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(&self.what, What::Topic(detail) if detail.buffers.is_empty())
    }

    fn since(&self, old: Option<&Self>) -> Duration {
        old.map_or(Duration::ZERO, |old| self.at.saturating_duration_since(old.at))
    }

    fn lines(&self, topics: &[TopicStats], old: Option<&Self>, sort: Sort) -> Vec<Line> {
        let old_topics = match old.map(|old| &old.what) {
            Some(What::Topics(topics)) => before(topics),
            _ => Before::new(),
        };
        lines(topics.to_vec(), &old_topics, self.since(old), sort)
    }

    /// The lines of the table; none if the subject is one topic.
    pub(super) fn topic_lines(&self, old: Option<&Self>, sort: Sort) -> Vec<Line> {
        match &self.what {
            What::Topics(topics) => self.lines(topics, old, sort),
            What::Topic(_) => Vec::new(),
        }
    }

    /// The lines about gateways and limits.
    pub(super) fn warnings(&self, old: Option<&Self>, width: usize) -> Vec<String> {
        let mut lines = self.gateways(old, width, gateways::SHOWN);
        lines.extend(groups::lines(&self.groups, width, groups::SHOWN));
        lines.extend(limits(&self.limits, width, SHOWN_LIMITS));
        lines
    }

    /// The rates of the buffers of a topic.
    fn rates(&self, detail: &TopicDetail, old: Option<&Self>) -> Vec<Rates> {
        let elapsed = self.since(old);
        let rates = |buffer: &rbmq::BufferDetail| {
            let old = match old.map(|old| &old.what) {
                Some(What::Topic(old)) => old.buffers.iter().find(|b| b.buffer.bid == buffer.buffer.bid),
                _ => None,
            };
            let (received, delivered) = (buffer.buffer.received_bytes, buffer.buffer.delivered_bytes);
            Rates {
                received: text::rate(received, old.map(|old| old.buffer.received_bytes), elapsed),
                delivered: text::rate(delivered, old.map(|old| old.buffer.delivered_bytes), elapsed),
            }
        };
        detail.buffers.iter().map(rates).collect()
    }

    /// The sample as text, in lines of at most `width` characters.
    pub(super) fn text(
        &self,
        subject: &Subject,
        old: Option<&Self>,
        broker: &str,
        width: usize,
    ) -> Vec<String> {
        let mut out = self.heading(old, broker, width);
        out.extend(self.gateways(old, width, usize::MAX));
        out.extend(groups::lines(&self.groups, width, usize::MAX));
        out.extend(limits(&self.limits, width, usize::MAX));
        out.push(String::new());
        match (&self.what, subject) {
            (What::Topics(topics), Subject::Topics(_, sort)) => {
                // Nothing is cut unless it is printed to a terminal.
                let width = if terminal::is_terminal() { width } else { usize::MAX };
                out.extend(table(&self.lines(topics, old, *sort), width, usize::MAX));
            }
            (What::Topic(detail), _) => out.extend(self.pictures(detail, old, width, Room::Any(SHOWN))),
            (What::Topics(_), Subject::Topic(_)) => {}
        }
        out
    }

    /// The part of the sample that fits a window: topics, or lines of drawings, from the scroll position on. At position 0, the
    /// drawings have as many subscriptions as fit.
    pub(super) fn window(
        &self,
        subject: &Subject,
        old: Option<&Self>,
        broker: &str,
        size: Size,
        scroll: &mut Scroll,
    ) -> Vec<String> {
        let Size { width, height } = size;
        let mut out = self.heading(old, broker, width);
        out.extend(self.gateways(old, width, gateways::SHOWN));
        out.extend(groups::lines(&self.groups, width, groups::SHOWN));
        out.extend(limits(&self.limits, width, SHOWN_LIMITS));
        out.push(text::cut("?: keys and columns", width));
        let room = height.saturating_sub(out.len());
        match (&self.what, subject) {
            (What::Topics(topics), Subject::Topics(_, sort)) => {
                // A line for the titles, and a line for the sum of the other topics.
                let most = room.saturating_sub(2);
                scroll.limit(topics.len().saturating_sub(most));
                out.extend(table_from(&self.lines(topics, old, *sort), width, scroll.from, most));
            }
            (What::Topic(detail), _) => {
                let all = self.pictures(detail, old, width, Room::Any(usize::MAX));
                scroll.limit(all.len().saturating_sub(room));
                match scroll.from {
                    0 => out.extend(self.pictures(detail, old, width, Room::Lines(room))),
                    from => out.extend(all.into_iter().skip(from).take(room)),
                }
            }
            (What::Topics(_), Subject::Topic(_)) => {}
        }
        out
    }

    fn pictures(&self, detail: &TopicDetail, old: Option<&Self>, width: usize, room: Room) -> Vec<String> {
        let name = text::name(detail.topic.as_str(), width.saturating_sub(16));
        if detail.buffers.is_empty() {
            return vec![text::cut(&format!("topic {name} has no publisher"), width)];
        }
        let all = detail.buffers.iter().zip(self.rates(detail, old));
        let all = all.map(|(detail, rates)| Drawn { detail, rates });
        // Live buffers come first.
        let (mut drawn, mut ended): (Vec<Drawn<'_>>, Vec<Drawn<'_>>) =
            all.partition(|one| !one.detail.buffer.has_ended());
        if drawn.is_empty() || matches!(room, Room::Any(_)) {
            drawn.append(&mut ended);
        }
        let legend = legend(width);
        match room {
            Room::Any(most) => {
                drawn.iter().flat_map(|one| lines_of(one, width, most)).chain(legend).collect()
            }
            Room::Lines(room) => window(&drawn, &ended, legend, Size { width, height: room }),
        }
    }

    fn heading(&self, old: Option<&Self>, broker: &str, width: usize) -> Vec<String> {
        let summary = &self.summary;
        let many = |n: u32, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let rate = |of: fn(&BrokerSummary) -> u64| text::bytes_or_dash(rate_of(self, old, of));
        let words = [
            format!("rbmq {} at {broker}", text::name(&summary.version, 20)),
            format!("up {}", text::time(summary.uptime_ms)),
            many(summary.topics, "topic"),
            many(summary.publishers, "publisher"),
            many(summary.subscribers, "subscriber"),
            format!(
                "rings {} of {}",
                bytes::show(summary.ring_bytes as f64),
                bytes::show(summary.max_ring_bytes as f64)
            ),
            format!("in {}/s", rate(|s| s.received_bytes)),
            format!("out {}/s", rate(|s| s.delivered_bytes)),
            format!("lost {}", bytes::show(summary.dropped_bytes as f64)),
        ];
        text::wrap(&words, 0, width).into_iter().map(|line| text::cut(&line, width)).collect()
    }

    fn gateways(&self, old: Option<&Self>, width: usize, most: usize) -> Vec<String> {
        gateways::lines(&self.gateways, old.map(|old| &old.gateways[..]), self.since(old), width, most)
    }

    /// The sample as a JSON object.
    pub(super) fn json(&self, subject: &Subject, old: Option<&Self>, broker: &str) -> Value {
        let mut object = json!({
            "broker": broker,
            "seconds": self.since(old).as_secs_f64(),
            "summary": self.summary,
            "limits": self.limits,
            "gateways": self.gateways,
            "groups": self.groups,
        });
        match (&self.what, subject) {
            (What::Topics(topics), Subject::Topics(_, sort)) => {
                object["topics"] = json!(self.lines(topics, old, *sort));
            }
            (What::Topic(detail), _) => {
                object["topic"] = json!(detail.topic);
                object["buffers"] = json!(detail.buffers);
                for (n, rates) in self.rates(detail, old).into_iter().enumerate() {
                    object["buffers"][n]["received_per_second"] = json!(rates.received);
                    object["buffers"][n]["delivered_per_second"] = json!(rates.delivered);
                }
            }
            (What::Topics(_), Subject::Topic(_)) => {}
        }
        object
    }
}

/// A line for each user or address at or near a limit, at most `most` of them and the number of the others.
fn limits(limits: &[LimitStats], width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        limits.iter().take(most).map(|of| text::cut(&format!("! {}", limit(of)), width)).collect();
    if let Some(more) = limits.len().checked_sub(most).filter(|more| *more > 0) {
        lines.push(text::cut(&format!("! and {more} more at or near their limits"), width));
    }
    lines
}

/// `user 'anna' publishes 1.0 MB/s of 1.0 MB/s, delayed for 12 s so far`.
fn limit(of: &LimitStats) -> String {
    let who = text::name(&of.who, 60);
    let does = match of.resource.as_str() {
        "in_bytes_per_s" => "publishes",
        "out_bytes_per_s" => "receives",
        resource => {
            let resource = text::name(resource, 20);
            let number =
                |n: u64| if resource == "ring_bytes" { bytes::show(n as f64) } else { text::position(n) };
            return format!("{who} has {} of {} {resource}", number(of.used), number(of.limit));
        }
    };
    let rate = |n: u64| format!("{}/s", bytes::show(n as f64));
    let delayed = match of.delayed_ms {
        0 => String::new(),
        ms => format!(", delayed for {} so far", text::time(ms)),
    };
    format!("{who} {does} {} of {}{delayed}", rate(of.used), rate(of.limit))
}

/// The most limits that a window names.
const SHOWN_LIMITS: usize = 3;
/// The most subscriptions of a buffer that are drawn.
const SHOWN: usize = 20;
/// The most ended buffers that have a line each in a window.
const ENDED: usize = 3;
/// The minimum number of lines of a drawing.
const LEAST_LINES: usize = 6;

/// The scroll position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scroll {
    /// The first topic, or the first line of the drawings.
    pub(super) from: usize,
    /// The last position that still fills the window.
    pub(super) last: usize,
}

impl Scroll {
    pub(super) fn limit(&mut self, last: usize) {
        (self.last, self.from) = (last, self.from.min(last));
    }
}

/// The space for drawings.
enum Room {
    /// This many lines.
    Lines(usize),
    /// Any number of lines, with this many subscriptions of each buffer.
    Any(usize),
}

/// A buffer to be drawn.
struct Drawn<'a> {
    detail: &'a BufferDetail,
    rates: Rates,
}

/// The characters of a line, and the lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

fn lines_of(drawn: &Drawn<'_>, width: usize, most: usize) -> Vec<String> {
    let mut lines = picture(drawn.detail, drawn.rates, width, most);
    lines.push(String::new());
    lines
}

/// Draws as many subscriptions of each buffer as fit. If not even one of each fits, draws as many buffers as fit, and sums the
/// others.
fn fit(drawn: &[Drawn<'_>], width: usize, room: usize) -> Vec<String> {
    let few = drawn.len() <= room / LEAST_LINES;
    for most in (1..=SHOWN).rev().filter(|_| few) {
        let lines: Vec<String> = drawn.iter().flat_map(|one| lines_of(one, width, most)).collect();
        if lines.len() <= room {
            return lines;
        }
    }
    let mut out = Vec::new();
    for (n, one) in drawn.iter().enumerate() {
        let lines = lines_of(one, width, 1);
        // The first buffer is drawn in any case, and one line is left for the sum.
        if n > 0 && out.len() + lines.len() >= room {
            let rest = &drawn[n..];
            let lag = rest.iter().map(|one| max_lag(one.detail)).max().unwrap_or(0);
            let more = format!("and {} more buffers: lag at most {}", rest.len(), bytes::show(lag as f64));
            out.push(text::cut(&more, width));
            break;
        }
        out.extend(lines);
    }
    out
}

/// The largest lag of the subscriptions of a buffer.
fn max_lag(detail: &BufferDetail) -> u64 {
    detail.subscriptions.iter().map(|sub| sub.lag_bytes(detail.buffer.head)).max().unwrap_or(0)
}

/// The lines of a window. In a small window, ended buffers and then the legend give way to live buffers.
fn window(
    drawn: &[Drawn<'_>],
    ended: &[Drawn<'_>],
    legend: Vec<String>,
    Size { width, height: room }: Size,
) -> Vec<String> {
    for most in [ENDED, 0] {
        let mut below = ended_lines(ended, width, most);
        below.extend_from_slice(&legend);
        let mut out = fit(drawn, width, room.saturating_sub(below.len()));
        if most == 0 && out.len() + below.len() > room {
            out.retain(|line| !line.is_empty());
        }
        out.extend(below);
        if out.len() <= room {
            return out;
        }
    }
    let mut out = fit(drawn, width, room.saturating_sub(1));
    out.extend(ended_lines(ended, width, 0));
    out
}

fn ended_lines(ended: &[Drawn<'_>], width: usize, shown: usize) -> Vec<String> {
    let lag = |lag| bytes::show(lag as f64);
    let one = |Drawn { detail, .. }: &Drawn<'_>| {
        format!("{} · lag {}", title(&detail.buffer), lag(max_lag(detail)))
    };
    let mut lines: Vec<String> = ended.iter().take(shown).map(one).collect();
    if let Some(rest) = ended.get(shown..).filter(|rest| !rest.is_empty()) {
        let most = rest.iter().map(|one| max_lag(one.detail)).max().unwrap_or(0);
        let which = if shown == 0 { "buffers" } else { "more that" };
        let and = if shown == 0 { "" } else { "and " };
        lines.push(format!("{and}{} {which} have ended, lag at most {}", rest.len(), lag(most)));
    }
    lines.into_iter().map(|line| text::cut(&line, width)).collect()
}

#[cfg(test)]
mod tests {
    use rbmq::{BufferStage, BufferStats, SubscriptionStats};

    use super::*;

    fn reading(stages: &[BufferStage]) -> Reading {
        let buffer = |(bid, stage): (usize, &BufferStage)| BufferDetail {
            buffer: BufferStats {
                bid: bid as u32,
                publisher: "camera".into(),
                connected: true,
                stage: *stage,
                head: 60_000,
                horizon: 60_000,
                capacity_bytes: 65_536,
                ..BufferStats::default()
            },
            subscriptions: ["dash", "log"]
                .map(|name| SubscriptionStats {
                    client: name.into(),
                    retains_from: Some(0),
                    ..SubscriptionStats::default()
                })
                .into(),
        };
        let buffers = stages.iter().enumerate().map(buffer).collect();
        let what = What::Topic(TopicDetail { topic: "t".parse().unwrap(), buffers });
        Reading {
            at: Instant::now(),
            summary: BrokerSummary::default(),
            limits: Vec::new(),
            gateways: Vec::new(),
            groups: Vec::new(),
            what,
        }
    }

    fn shown(stages: &[BufferStage], width: usize, height: Option<usize>) -> Vec<String> {
        let (reading, subject) = (reading(stages), Subject::Topic("t".parse().unwrap()));
        match height {
            Some(height) => {
                reading.window(&subject, None, "here", Size { width, height }, &mut Scroll::default())
            }
            None => reading.text(&subject, None, "here", width),
        }
    }

    #[test]
    fn who_is_near_a_limit_has_a_line() {
        let of = |who: &str, resource: &str, (used, limit), at_limit, delayed_ms| LimitStats {
            who: who.into(),
            resource: resource.into(),
            used,
            limit,
            at_limit,
            delayed_ms,
        };
        let mut all = vec![
            of("user 'anna'", "in_bytes_per_s", (1_000_000, 1_000_000), true, 12_300),
            of("address 10.0.0.7", "out_bytes_per_s", (900, 1_000), false, 0),
            of("user 'bert'", "topics", (2_000, 2_000), true, 0),
            of("user 'carl'", "ring_bytes", (900_000, 1_000_000), false, 0),
        ];
        assert_eq!(
            limits(&all, 80, usize::MAX),
            [
                "! user 'anna' publishes 1.00 MB/s of 1.00 MB/s, delayed for 12 s so far",
                "! address 10.0.0.7 receives 900 B/s of 1.00 kB/s",
                "! user 'bert' has 2,000 of 2,000 topics",
                "! user 'carl' has 900 kB of 1.00 MB ring_bytes",
            ]
        );
        let short = limits(&all, 20, 3);
        assert_eq!(
            (short.len(), &*short[0], &*short[3]),
            (4, "! user 'anna' publi…", "! and 1 more at or …")
        );
        all.truncate(3);
        assert_eq!(limits(&all, 80, 3).len(), 3);
    }

    #[test]
    fn a_window_scrolls_through_all_drawings_and_no_further() {
        let (reading, subject) = (reading(&[BufferStage::Live; 9]), Subject::Topic("t".parse().unwrap()));
        let all = reading.text(&subject, None, "here", 80);
        let head = all.iter().position(String::is_empty).unwrap() + 1;
        let window_of = |from, height| {
            let mut scroll = Scroll { from, last: 0 };
            (reading.window(&subject, None, "here", Size { width: 80, height }, &mut scroll), scroll.from)
        };
        let window = |from| window_of(from, 24);
        let room = 24 - head;
        for from in [1, 7, all.len() - head - room] {
            let (lines, kept) = window(from);
            assert_eq!((&lines[head..], kept), (&all[head + from..head + from + room], from));
        }
        assert_eq!(window(usize::MAX), window(all.len() - head - room));
        // Everything fits, so nothing scrolls.
        assert_eq!(window_of(5, 1000).1, 0);
    }

    #[test]
    fn a_window_draws_live_buffers_and_has_a_line_for_ended_ones() {
        use BufferStage::{Closed, Live};
        let lines = shown(&[Closed, Closed, Live, Closed, Closed, Closed], 80, Some(24));
        assert!(lines.len() <= 24, "{}", lines.join("\n"));
        let at = |part: &str| lines.iter().position(|line| line.contains(part)).expect(part);
        assert!(
            at("buffer 2 ·") < at("dash blocks the publisher at") && at("dash blocks") < at("buffer 0 ·")
        );
        assert!(
            at("buffer 0 · from camera · closed") < at("and 2 more that have ended, lag at most 60.0 kB")
        );
        assert!(lines.last().unwrap().contains("several cursors"), "the legend is complete");
        // A smaller window has one line for all ended buffers.
        let lines = shown(&[Closed, Live, Closed], 80, Some(20));
        assert!(lines.len() <= 20, "{}", lines.join("\n"));
        for part in [
            "log ",
            "dash blocks the publisher at",
            "2 buffers have ended, lag at most 60.0 kB",
            "several cursors",
        ] {
            assert!(
                lines.iter().any(|line| line.contains(part)),
                "'{part}' is not in:\n{}",
                lines.join("\n")
            );
        }
        // Without a window, all buffers are drawn, live ones first.
        let lines = shown(&[Closed, Live], 80, None);
        assert_eq!(lines.iter().filter(|line| line.contains(" ring [")).count(), 2);
        assert!(
            lines.iter().position(|line| line.starts_with("buffer 1"))
                < lines.iter().position(|line| line.starts_with("buffer 0"))
        );
    }

    #[test]
    fn buffers_that_do_not_fit_are_summed() {
        for count in [2, 5, 300] {
            let lines = shown(&vec![BufferStage::Live; count], 80, Some(30));
            assert!(lines.len() <= 30, "{}", lines.join("\n"));
            assert!(lines.iter().any(|line| line.contains("blocks the publisher at")));
            assert!(lines.last().unwrap().contains("several cursors"), "the legend is complete");
            let summed = lines.iter().any(|line| line.contains(" more buffers: lag at most 60.0 kB"));
            assert_eq!(summed, lines.iter().filter(|line| line.starts_with("buffer ")).count() < count);
        }
    }
}
