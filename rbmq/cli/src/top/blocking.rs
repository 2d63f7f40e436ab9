//! The reasons why a buffer's publisher waits, in words.

use rbmq::{BlockReason, BufferStats, SubscriptionStats};

use super::text;
use crate::bytes;

/// The number of blocking subscriptions that are named. The others are counted.
const NAMED: usize = 3;

/// The longest name of a subscription, in characters.
const NAME_WIDTH: usize = 40;

/// Returns whether the ring retains more than its history for this subscription. The publisher could write further without it.
pub(super) fn blocks(buffer: &BufferStats, sub: &SubscriptionStats) -> bool {
    sub.retains_from.is_some_and(|at| at < buffer.head.saturating_sub(buffer.retain_bytes))
}

/// Describes what blocks the publisher, and how many bytes it may still write.
pub(super) fn describe(buffer: &BufferStats, subscriptions: &[SubscriptionStats]) -> Vec<String> {
    if buffer.has_ended() {
        return vec!["the log has ended, and nothing blocks the publisher".into()];
    }
    let room = bytes::show(buffer.horizon.saturating_sub(buffer.head) as f64);
    let mut blocking: Vec<_> = subscriptions.iter().filter(|sub| blocks(buffer, sub)).collect();
    blocking.sort_by_key(|sub| sub.retains_from);
    let mut words = block_reason(buffer, subscriptions);
    words.extend(blocking.iter().take(NAMED).enumerate().map(|(n, sub)| subscription(sub, n == 0)));
    if words.is_empty() {
        return vec![format!("nothing blocks the publisher: {room} to the horizon")];
    }
    if blocking.len() > NAMED {
        words.push(format!("and {} more", blocking.len() - NAMED));
    }
    words.push(format!("{room} to the horizon"));
    words
}

/// Describes a blocking subscription. Only the slowest one repeats the verb.
fn subscription(sub: &SubscriptionStats, slowest: bool) -> String {
    let name = text::name(sub.title(), NAME_WIDTH);
    let blocks = if slowest { " blocks the publisher" } else { "" };
    let time = match sub.offline {
        true => format!("for {} more, while it is offline", text::time(sub.expires_in_ms)),
        false => format!("for {}", text::time(sub.idle_ms)),
    };
    format!("{name}{blocks} at {}, {time}", text::position(sub.retains_from.unwrap_or_default()))
}

/// Describes the block reason that is not a slow subscription.
fn block_reason(buffer: &BufferStats, subscriptions: &[SubscriptionStats]) -> Vec<String> {
    let Some(reason) = buffer.blocked_by() else { return Vec::new() };
    if reason == BlockReason::MergeTableFull {
        let (entries, limit) = (buffer.table_entries, buffer.max_table_entries);
        let slowest = subscriptions.iter().min_by_key(|sub| sub.consumed);
        let slowest =
            slowest.map(|sub| format!("{} has consumed the least", text::name(sub.title(), NAME_WIDTH)));
        let table = format!("the merge table blocks the publishers: {entries} of {limit} runs");
        return [table].into_iter().chain(slowest).collect();
    }
    let (receivers, min) = (buffer.receivers, buffer.min_subscribers);
    let mut words = vec![match receivers < min {
        true => format!("min_subscribers blocks the publisher: {receivers} of {min} are connected"),
        false => format!("min_subscribers blocks the publisher: fewer than {min} have received everything"),
    }];
    let retained = buffer.retained_from.filter(|at| *at < buffer.head);
    words.extend(retained.map(|at| format!("messages from {} on are retained for them", text::position(at))));
    words
}
