//! The drawing of a buffer: its ring as a bar, and the cursors of its subscriptions below. Pure functions from two samples to lines
//! of text.
//!
//! ```text
//!              T                        B H            Z       tail, boundary, head, horizon
//!              [░░░░░░██████████████████▓▓.............]
//!  dash        [      =====l---s                       ]       consumed … landed … sent
//! ```
//!
//! The bar is the range from the tail to the horizon, at most the capacity. A cursor may be below the tail if the ring retains
//! nothing for its subscription. No cursor is above the horizon.

use rbmq::{BufferDetail, BufferStage, BufferStats, SubscriptionStats};

use super::blocking::{blocks, describe};
use super::table::policy;
use super::text;
use crate::bytes;

/// The width of a subscriber's name beside its bar, in characters.
const LABEL: usize = 14;
/// The width of the narrowest bar.
const MIN_CELLS: usize = 8;

/// Bytes per second, in and out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    pub(crate) received: Option<f64>,
    pub(crate) delivered: Option<f64>,
}

/// Maps positions to the cells of a bar.
struct Scale {
    from: u64,
    to: u64,
    cells: usize,
}

impl Scale {
    fn new(buffer: &BufferStats, cells: usize) -> Self {
        Self { from: buffer.tail, to: buffer.horizon.max(buffer.tail), cells: cells.max(1) }
    }

    /// Returns the cell of a position, or the nearest cell if the position is outside of the bar.
    fn cell(&self, p: u64) -> usize {
        let last = self.cells - 1;
        let span = u128::from(self.to - self.from);
        if p <= self.from || span == 0 {
            return 0;
        }
        let at = u128::from(p - self.from) * self.cells as u128 / span;
        usize::try_from(at).unwrap_or(last).min(last)
    }

    /// Returns the position in the middle of a cell.
    fn middle(&self, cell: usize) -> u64 {
        let span = u128::from(self.to - self.from);
        let at = span * (2 * cell as u128 + 1) / (2 * self.cells as u128);
        self.from.saturating_add(u64::try_from(at).unwrap_or(u64::MAX))
    }
}

/// Draws a buffer in lines of at most `width` characters, with the `most` slowest subscriptions. The others are summed.
pub(crate) fn picture(detail: &BufferDetail, rates: Rates, width: usize, most: usize) -> Vec<String> {
    let (buffer, subscriptions) = (&detail.buffer, &detail.subscriptions);
    let mut lines = heading(buffer, rates, width);
    if buffer.capacity_bytes == 0 {
        lines.push("  the publisher has not answered yet, so the buffer has no ring".into());
        return cut(lines, width);
    }
    let cells = width.saturating_sub(LABEL + 4).max(MIN_CELLS);
    let scale = Scale::new(buffer, cells);
    let indent = LABEL + 3;
    lines.push(format!("{:indent$}{}", "", marks(buffer, &scale)));
    let slowest = subscriptions.iter().filter_map(|sub| sub.retains_from).min();
    lines.push(format!("{:>LABEL$} [{}]", "ring", bar(buffer, subscriptions, &scale)));
    for sub in subscriptions.iter().take(most) {
        let label = text::name(sub.title(), LABEL - 1);
        lines.push(format!(" {label:<w$} [{}]", cursors(sub, &scale), w = LABEL - 1));
        lines.extend(text::wrap(&words(buffer, sub, slowest), indent, width));
    }
    lines.extend(rest(buffer, subscriptions.get(most..).unwrap_or_default()));
    lines.extend(text::wrap(&describe(buffer, subscriptions), 2, width));
    cut(lines, width)
}

/// Returns the legend of the letters and shades, which follows the last drawing.
pub(crate) fn legend(width: usize) -> Vec<String> {
    let words = [
        "T tail",
        "B boundary",
        "H head",
        "Z horizon",
        "░ history",
        "█ not received by all",
        "▓ incomplete",
        ". free",
        "c consumed",
        "l landed",
        "s sent",
        "* several cursors",
    ];
    cut(text::wrap(&words.map(str::to_owned), 0, width), width)
}

fn cut(lines: Vec<String>, width: usize) -> Vec<String> {
    lines.into_iter().map(|line| text::cut(line.trim_end(), width)).collect()
}

/// Returns the number of a buffer, its publisher, and its state.
pub(crate) fn title(buffer: &BufferStats) -> String {
    let (publisher, state) = publisher_and_state(buffer);
    let words = [format!("buffer {}", buffer.bid), publisher, state];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn publisher_and_state(buffer: &BufferStats) -> (String, String) {
    let publisher = match (buffer.publisher.as_str(), buffer.address.as_str()) {
        ("", "") => String::new(),
        (name, "") => format!("from {}", text::name(name, 40)),
        ("", address) => format!("from {}", text::name(address, 60)),
        (name, address) => format!("from {} at {}", text::name(name, 40), text::name(address, 60)),
    };
    let state = match buffer.stage {
        BufferStage::Opening => "opening".into(),
        BufferStage::Live if buffer.connected || publisher.is_empty() => "live".into(),
        BufferStage::Live => "publisher offline".into(),
        BufferStage::Closed => format!("closed, readable for {}", text::time(buffer.expires_in_ms)),
        BufferStage::Gone => {
            format!("publisher gone, readable for {}", text::time(buffer.expires_in_ms))
        }
    };
    (publisher, state)
}

fn heading(buffer: &BufferStats, rates: Rates, width: usize) -> Vec<String> {
    let (publisher, state) = publisher_and_state(buffer);
    let show = |value: u64| bytes::show(value as f64);
    let mut first = vec![format!("buffer {}", buffer.bid), publisher, state, buffer.framing.to_string()];
    first.push(format!("epoch {:032x}", buffer.epoch));
    let mut lines = text::wrap(&first, 0, width);
    if buffer.capacity_bytes > 0 {
        let second = [
            format!("ring {}", show(buffer.capacity_bytes)),
            format!("history {}", show(buffer.retain_bytes)),
            format!("deliveries up to {}", show(buffer.max_delivery_bytes)),
            format!("in {}/s", text::bytes_or_dash(rates.received)),
            format!("out {}/s", text::bytes_or_dash(rates.delivered)),
            format!("lost {}", show(buffer.dropped_bytes)),
            match buffer.max_table_entries {
                0 => String::new(),
                limit => format!("merge table {} of {limit} runs", buffer.table_entries),
            },
            match buffer.min_subscribers {
                0 => String::new(),
                min => format!("min_subscribers {min}, {} connected", buffer.receivers),
            },
        ];
        lines.extend(text::wrap(&second, 2, width));
        let third = [
            format!("tail {}", text::position(buffer.tail)),
            format!("boundary {}", text::position(buffer.boundary)),
            format!("head {}", text::position(buffer.head)),
            format!("horizon {}", text::position(buffer.horizon)),
        ];
        lines.extend(text::wrap(&third, 2, width));
    }
    lines
}

/// Returns the letters above the bar. If several positions share a cell, the head has precedence over the boundary, and both over
/// the others.
fn marks(buffer: &BufferStats, scale: &Scale) -> String {
    let mut cells = vec![' '; scale.cells];
    let marks = [('Z', buffer.horizon), ('T', buffer.tail), ('B', buffer.boundary), ('H', buffer.head)];
    for (letter, position) in marks {
        cells[scale.cell(position)] = letter;
    }
    cells.into_iter().collect()
}

fn bar(buffer: &BufferStats, subscriptions: &[SubscriptionStats], scale: &Scale) -> String {
    let missing = subscriptions.iter().map(|sub| sub.landed).min().unwrap_or(u64::MAX);
    let shade = |cell| {
        let at = scale.middle(cell);
        if at >= buffer.head {
            '.'
        } else if at >= buffer.boundary {
            '▓'
        } else if at >= missing {
            '█'
        } else {
            '░'
        }
    };
    (0..scale.cells).map(shade).collect()
}

/// Draws the cursors of a subscription. Bytes between them are in the subscriber's memory (`=`) or on their way (`-`).
fn cursors(sub: &SubscriptionStats, scale: &Scale) -> String {
    let mut cells = vec![' '; scale.cells];
    let (consumed, landed, sent) = (scale.cell(sub.consumed), scale.cell(sub.landed), scale.cell(sub.sent));
    fill(&mut cells, consumed, landed, '=');
    fill(&mut cells, landed, sent, '-');
    for (letter, at) in [('c', consumed), ('l', landed), ('s', sent)] {
        // An offline subscription has no bytes on their way.
        if letter == 's' && sub.offline {
            continue;
        }
        cells[at] = if matches!(cells[at], ' ' | '=' | '-') { letter } else { '*' };
    }
    if sub.landed < scale.from {
        cells[0] = '<';
    }
    cells.into_iter().collect()
}

fn fill(cells: &mut [char], from: usize, to: usize, with: char) {
    if let Some(between) = cells.get_mut(from..to) {
        between.fill(with);
    }
}

fn words(buffer: &BufferStats, sub: &SubscriptionStats, slowest: Option<u64>) -> Vec<String> {
    let behind = |p: u64| bytes::show(buffer.head.saturating_sub(p) as f64);
    let lag = sub.lag_bytes(buffer.head);
    let mut words = vec![policy(sub.policy)];
    if lag == 0 && sub.consumed >= sub.landed {
        words.push("has everything".into());
    } else {
        let part = text::percent(lag, buffer.capacity_bytes);
        words.push(format!("lag {} ({part})", bytes::show(lag as f64)));
        words.push(format!("behind head: sent {}, consumed {}", behind(sub.sent), behind(sub.consumed)));
    }
    if sub.offline {
        words.push(format!("offline, position kept for {}", text::time(sub.expires_in_ms)));
    } else if lag > 0 {
        words.push(format!("no progress for {}", text::time(sub.idle_ms)));
    }
    if blocks(buffer, sub) {
        let too = if sub.retains_from == slowest { "" } else { " too" };
        words.push(format!("blocks the publisher{too}"));
    }
    if sub.dropped_bytes > 0 {
        words.push(format!("lost {}", bytes::show(sub.dropped_bytes as f64)));
    }
    words
}

fn rest(buffer: &BufferStats, rest: &[SubscriptionStats]) -> Option<String> {
    if rest.is_empty() {
        return None;
    }
    let lag = rest.iter().map(|sub| sub.lag_bytes(buffer.head)).max().unwrap_or(0);
    let lost = rest.iter().map(|sub| sub.dropped_bytes).fold(0, u64::saturating_add);
    let (lag, lost) = (bytes::show(lag as f64), bytes::show(lost as f64));
    Some(format!("  and {} more: lag at most {lag}, lost {lost}", rest.len()))
}

#[cfg(test)]
mod tests {
    use rbmq::Framing;
    use rocketbufs::Policy;

    use super::*;

    fn buffer(base: u64) -> BufferStats {
        BufferStats {
            bid: 7,
            epoch: 0xabc,
            publisher: "camera".into(),
            address: "127.0.0.1:4000".into(),
            connected: true,
            framing: Framing::Records,
            stage: BufferStage::Live,
            start: base,
            tail: base,
            boundary: base + 600,
            head: base + 700,
            horizon: base + 1000,
            capacity_bytes: 1000,
            retain_bytes: 500,
            max_delivery_bytes: 250,
            received_bytes: 700,
            ..BufferStats::default()
        }
    }

    fn sub(client: &str, [consumed, landed, sent]: [u64; 3]) -> SubscriptionStats {
        let client = client.into();
        SubscriptionStats {
            client,
            consumed,
            landed,
            sent,
            retains_from: Some(landed),
            ..SubscriptionStats::default()
        }
    }

    fn sample(base: u64) -> BufferDetail {
        let at = |positions: [u64; 3]| positions.map(|p| base + p);
        let slow = SubscriptionStats { idle_ms: 3200, ..sub("dash", at([0, 150, 400])) };
        let lossy = SubscriptionStats {
            policy: Policy::Drop,
            dropped_bytes: 5000,
            ..sub("log", at([250, 250, 600]))
        };
        let away =
            SubscriptionStats { offline: true, expires_in_ms: 42_000, ..sub("attic", at([500, 500, 500])) };
        let good = sub("good", at([700, 700, 700]));
        BufferDetail { buffer: buffer(base), subscriptions: vec![slow, lossy, away, good] }
    }

    const RATES: Rates = Rates { received: Some(1_200_000.0), delivered: None };

    #[test]
    fn a_ring_and_its_cursors() {
        let expected = "\
buffer 7 · from camera at 127.0.0.1:4000 · live · records
epoch 00000000000000000000000000000abc
  ring 1.00 kB · history 500 B · deliveries up to 250 B
  in 1.20 MB/s · out -/s · lost 0 B
  tail 0 · boundary 600 · head 700 · horizon 1,000
                 T                           B    H             Z
          ring [░░░░░░░██████████████████████▓▓▓▓▓..............]
 dash          [c======l-----------s                            ]
                 block · lag 550 B (55 %)
                 behind head: sent 300 B, consumed 700 B
                 no progress for 3.2 s · blocks the publisher
 log           [            *---------------s                   ]
                 drop · lag 450 B (45 %)
                 behind head: sent 100 B, consumed 450 B
                 no progress for 0.0 s · lost 5.00 kB
 attic         [                        *                       ]
                 block · lag 200 B (20 %)
                 behind head: sent 200 B, consumed 200 B
                 offline, position kept for 42 s
 good          [                                 *              ]
                 block · has everything
  dash blocks the publisher at 150, for 3.2 s
  300 B to the horizon";
        assert_eq!(picture(&sample(0), RATES, 66, 9).join("\n"), expected);
    }

    /// Only what depends on no number: the bars.
    fn bars(detail: &BufferDetail, width: usize) -> Vec<String> {
        let lines = picture(detail, RATES, width, 99);
        lines.iter().filter_map(|line| line.split_once('[')).map(|(_, bar)| bar.to_owned()).collect()
    }

    #[test]
    fn positions_near_the_end_of_numbers_are_drawn_like_others() {
        assert_eq!(bars(&sample(u64::MAX - 1000), 100), bars(&sample(0), 100));
        let last = text::position(u64::MAX);
        assert!(
            picture(&sample(u64::MAX - 1000), RATES, 200, 9).join("\n").contains(&format!("horizon {last}"))
        );
    }

    #[test]
    fn many_subscriptions_are_summed() {
        let text = picture(&sample(0), RATES, 100, 1);
        assert!(text.contains(&"  and 3 more: lag at most 450 B, lost 5.00 kB".to_owned()), "{text:?}");
        assert_eq!(bars(&sample(0), 100).len(), 5);
    }

    #[test]
    fn empty_rings_rings_that_are_not_there_and_ended_logs() {
        let mut detail = BufferDetail { buffer: buffer(0), subscriptions: Vec::new() };
        (detail.buffer.boundary, detail.buffer.head, detail.buffer.horizon) = (0, 0, 500);
        let text = picture(&detail, Rates::default(), 40, 9);
        assert_eq!(
            text[text.len() - 3..],
            [
                "                 H                    Z",
                "          ring [......................]",
                "  nothing blocks the publisher: 500 B t…",
            ]
        );
        // No room at all: one position.
        detail.buffer.horizon = 0;
        assert_eq!(bars(&detail, 40).len(), 1);
        detail.buffer.stage = BufferStage::Closed;
        assert!(picture(&detail, RATES, 80, 9).concat().contains("the log has ended"));
        detail.buffer = BufferStats { bid: 3, ..BufferStats::default() };
        let text = picture(&detail, RATES, 100, 9);
        assert_eq!(text[0], "buffer 3 · opening · records · epoch 00000000000000000000000000000000");
        assert_eq!(text[1], "  the publisher has not answered yet, so the buffer has no ring");
    }

    #[test]
    fn a_subscription_without_a_hold_can_fall_behind_the_tail() {
        let mut detail = sample(10_000);
        detail.subscriptions = vec![SubscriptionStats { retains_from: None, ..sub("late", [100, 200, 300]) }];
        assert!(bars(&detail, 60)[1].starts_with('<'));
        assert!(picture(&detail, RATES, 200, 9).concat().contains("nothing blocks the publisher"));
    }

    fn last_lines(detail: &BufferDetail) -> String {
        let lines = picture(detail, RATES, 78, 9);
        let from = lines.iter().rposition(|line| line.contains("] ") || line.ends_with(']')).unwrap_or(0);
        let own = |line: &&String| line.starts_with("  ") && !line.starts_with("   ");
        lines[from..].iter().filter(own).cloned().collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn blocking_subscriptions_are_named_the_slowest_first() {
        let mut detail = sample(0);
        detail.buffer.retain_bytes = 100;
        assert_eq!(
            last_lines(&detail),
            "  dash blocks the publisher at 150, for 3.2 s · log at 250, for 0.0 s\n  \
             attic at 500, for 42 s more, while it is offline · 300 B to the horizon"
        );
        detail.subscriptions.extend([sub("e", [1, 400, 400]), sub("f", [1, 450, 450])]);
        assert!(last_lines(&detail).contains("dash blocks the publisher at 150, for 3.2 s · log at 250"));
        assert!(last_lines(&detail).contains(" · and 2 more · 300 B"), "{}", last_lines(&detail));
        let words = picture(&detail, RATES, 200, 9).concat();
        assert!(words.contains("blocks the publisher too"), "{words}");
    }

    #[test]
    fn block_reasons_other_than_subscribers_are_named() {
        let mut detail = sample(0);
        detail.subscriptions = vec![sub("good", [10, 700, 700])];
        (detail.buffer.table_entries, detail.buffer.max_table_entries) = (8, 8);
        assert_eq!(
            last_lines(&detail),
            "  the merge table blocks the publishers: 8 of 8 runs\n  \
             good has consumed the least · 300 B to the horizon"
        );
        detail.buffer.table_entries = 7;
        assert!(last_lines(&detail).contains("nothing blocks the publisher"));
        assert!(picture(&detail, RATES, 200, 9).concat().contains("merge table 7 of 8 runs"));
        let buffer = &mut detail.buffer;
        (buffer.max_table_entries, buffer.min_subscribers, buffer.receivers) = (0, 2, 1);
        buffer.retained_from = Some(684);
        assert_eq!(
            last_lines(&detail),
            "  min_subscribers blocks the publisher: 1 of 2 are connected\n  \
             messages from 684 on are retained for them · 300 B to the horizon"
        );
        // Enough subscribers are connected, and their missing bytes fill the ring.
        detail.buffer.receivers = 2;
        assert!(last_lines(&detail).contains("nothing blocks the publisher"));
        detail.buffer.retained_from = Some(10);
        assert!(last_lines(&detail).contains("blocks the publisher: fewer than 2 have received everything"));
        detail.buffer.stage = BufferStage::Closed;
        assert!(last_lines(&detail).contains("nothing blocks the publisher"));
    }

    #[test]
    fn the_largest_number_of_everything_fits_any_width() {
        let mut detail = sample(0);
        let all = u64::MAX;
        let positions = [all, all, all];
        detail.subscriptions.push(SubscriptionStats {
            idle_ms: all,
            dropped_bytes: all,
            expires_in_ms: all,
            ..sub("", positions)
        });
        let buffer = &mut detail.buffer;
        (buffer.head, buffer.horizon, buffer.capacity_bytes, buffer.expires_in_ms) = (all, all, all, all);
        for width in 0..160 {
            for detail in [&sample(0), &detail] {
                let lines = picture(detail, RATES, width, 9);
                assert!(
                    lines.iter().chain(&legend(width)).all(|line| line.chars().count() <= width),
                    "{width}"
                );
            }
        }
    }
}
