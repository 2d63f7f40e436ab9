//! Who or what keeps a buffer's publisher from writing on, in words.

use rbmq::{BufferStats, Holds, SubscriptionStats};

use super::text;
use crate::bytes;

/// Subscriptions that are named as holding the publisher; of more it is said how many.
const NAMED: usize = 3;

/// Whether this cursor keeps the horizon back: without it the horizon would leave only the history behind the head.
pub(super) fn limits(buffer: &BufferStats, sub: &SubscriptionStats) -> bool {
    sub.holds.is_some_and(|at| at < buffer.head.saturating_sub(buffer.retain_bytes))
}

/// Who keeps the publisher from writing on, and how much it may still write.
pub(super) fn who_holds(buffer: &BufferStats, subscriptions: &[SubscriptionStats]) -> Vec<String> {
    if buffer.has_ended() {
        return vec!["the log has ended: nobody is waited for".into()];
    }
    let room = bytes::show(buffer.horizon.saturating_sub(buffer.head) as f64);
    let mut holders: Vec<_> = subscriptions.iter().filter(|sub| limits(buffer, sub)).collect();
    holders.sort_by_key(|sub| sub.holds);
    let mut words = held_by_the_broker(buffer, subscriptions);
    words.extend(holders.iter().take(NAMED).enumerate().map(|(n, sub)| holder(sub, n == 0)));
    if words.is_empty() {
        return vec![format!("nobody holds the publisher: {room} to the horizon")];
    }
    if holders.len() > NAMED {
        words.push(format!("and {} more", holders.len() - NAMED));
    }
    words.push(format!("{room} to the horizon"));
    words
}

/// A subscription that holds the publisher; the slowest of them says so.
fn holder(sub: &SubscriptionStats, slowest: bool) -> String {
    let who = text::name(sub.title(), 40);
    let holds = if slowest { " holds the publisher" } else { "" };
    let since = match sub.absent {
        true => format!("for {} more, while it is away", text::time(sub.left_ms)),
        false => format!("for {}", text::time(sub.idle_ms)),
    };
    format!("{who}{holds} at {}, {since}", text::position(sub.holds.unwrap_or_default()))
}

/// What holds it besides subscriptions that are behind.
fn held_by_the_broker(buffer: &BufferStats, subscriptions: &[SubscriptionStats]) -> Vec<String> {
    let Some(holds) = buffer.holds() else { return Vec::new() };
    if holds == Holds::TableFull {
        let (entries, limit) = (buffer.table_entries, buffer.max_table_entries);
        let last = subscriptions.iter().min_by_key(|sub| sub.consumed);
        let last = last.map(|sub| format!("{} has given back the least", text::name(sub.title(), 40)));
        let table = format!("the merge table holds the publishers: {entries} of {limit} runs");
        return [table].into_iter().chain(last).collect();
    }
    let (there, least) = (buffer.receivers, buffer.min_subscribers);
    let mut words = vec![match there < least {
        true => format!("min_subscribers holds the publisher: {there} of {least} are there"),
        false => format!("min_subscribers holds the publisher: {least} do not have all of it yet"),
    }];
    let kept = buffer.kept_for_least.filter(|at| *at < buffer.head);
    words.extend(kept.map(|at| format!("what begins at {} is kept for them", text::position(at))));
    words
}
