//! The limits on topics, rings and filters, and the refusals with their reasons. This module does no I/O.

use access::Exceeded;
use rbmq_wire::{RECORD_HEADER_BYTES, RUN_HEADER_BYTES, RefuseCode, TopicName};
use rocketbufs::error::{BufferError, RefusedError, SubscribeError};

use super::config::BrokerSettings;
use super::rules::{Rule, rounded};

/// Why a buffer is refused: the code for the publisher, and the reason as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: RefuseCode,
    pub(super) reason: String,
}

impl Refused {
    pub(super) fn new(code: RefuseCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// The refusal of a kept topic that another member of the cluster has.
pub(super) fn elsewhere(addresses: &[String], topic: &TopicName) -> Refused {
    let why = format!("has topic '{topic}'; newer clients go there by themselves");
    Refused::new(RefuseCode::Elsewhere, RefuseCode::elsewhere(addresses, &why))
}

/// The refusal of a buffer to which the framework cannot subscribe.
pub(super) fn not_subscribed(error: SubscribeError) -> Refused {
    let code = match error {
        SubscribeError::TooLarge { .. } | SubscribeError::TooMany(_) => RefuseCode::Limit,
        _ => RefuseCode::Internal,
    };
    Refused::new(code, error.to_string())
}

/// The refusal of a buffer for which the framework cannot make a buffer for subscribers.
pub(super) fn no_buffer(error: BufferError) -> Refused {
    match error {
        BufferError::NotSubscribed(error) => not_subscribed(error),
        BufferError::TooMany(_) => Refused::new(RefuseCode::Limit, error.to_string()),
        // The same refusal as for a ring that is made later.
        BufferError::Memory(error) => not_accepted(&error.into()),
        _ => Refused::new(RefuseCode::Internal, error.to_string()),
    }
}

/// The refusal of a buffer whose subscription failed later.
pub(super) fn not_accepted(error: &RefusedError) -> Refused {
    match error {
        RefusedError::TooManyBytes { .. } => Refused::new(
            RefuseCode::Limit,
            format!("{error}; ask for a smaller ring, or raise this limit of the broker"),
        ),
        RefusedError::NotAllowed(_) => Refused::new(RefuseCode::Limit, error.to_string()),
        _ => Refused::new(RefuseCode::Internal, error.to_string()),
    }
}

/// The refusal of a buffer beyond a quota.
pub(super) fn over_quota(exceeded: Exceeded) -> Refused {
    Refused::new(RefuseCode::Limit, exceeded.to_string())
}

/// The refusal of a topic beyond the limit.
pub(super) fn too_many_topics(open: usize, settings: &BrokerSettings) -> Refused {
    let max = settings.max_topics;
    Refused::new(
        RefuseCode::Limit,
        format!("the broker has {open} topics; its limit (broker.max_topics) is {max}"),
    )
}

/// Refuses one more buffer of a publisher that has `open` buffers at the limit.
pub(super) fn check_buffers(open: usize, settings: &BrokerSettings) -> Result<(), Refused> {
    let max = settings.max_buffers_per_publisher;
    if open < max {
        return Ok(());
    }
    let reason =
        format!("this publisher has {open} buffers; the limit (broker.max_buffers_per_publisher) is {max}");
    Err(Refused::new(RefuseCode::Limit, reason))
}

/// The size of the broker's ring for a buffer: `requested`, or more for the deliveries. The limit applies to the size after
/// rounding up to a power of two.
pub(super) fn ring_bytes(
    requested: u64,
    max_delivery: u64,
    settings: &BrokerSettings,
) -> Result<u64, Refused> {
    let (min, max) = (settings.min_ring_bytes, settings.max_ring_bytes);
    let needed = max_delivery.saturating_mul(2);
    let size = requested.max(needed).max(min);
    let takes = rounded(size);
    if takes <= max {
        return Ok(size);
    }
    let request = match requested >= needed {
        true => format!("a ring of {requested} bytes was requested"),
        false => format!("deliveries of {max_delivery} bytes need a ring of {needed}"),
    };
    // The ring of a publisher usually is a power of two already.
    let takes = if takes == size { String::new() } else { format!(", which takes {takes}") };
    let reason = format!("{request}{takes}; the limit of this broker (broker.max_ring_bytes) is {max}");
    Err(Refused::new(RefuseCode::Size, reason))
}

/// The size of the broker's ring for a buffer where it grows: as for the deliveries for which it was made at first.
pub(super) fn first_ring_bytes(requested: u64, settings: &BrokerSettings) -> u64 {
    requested.max(settings.min_ring_bytes)
}

/// The largest ring to which the ring of a buffer may grow, of a power of two.
pub(super) fn largest_ring_bytes(settings: &BrokerSettings) -> u64 {
    let deliveries = largest_message(settings).saturating_mul(2).checked_next_power_of_two();
    deliveries.unwrap_or(u64::MAX).min(1 << settings.max_ring_bytes.ilog2())
}

/// The largest delivery for which the ring of a buffer may grow: `broker.max_message_bytes` with a header, as far as the rings and the quota of
/// its publisher allow, which counts the `present` one too.
pub(super) fn largest_delivery_bytes(settings: &BrokerSettings, present: u64, quota: Option<u64>) -> u64 {
    largest_message(settings).min(largest_ring_within(settings, present, quota) / 2)
}

fn largest_ring_within(settings: &BrokerSettings, present: u64, quota: Option<u64>) -> u64 {
    let more = quota.map_or(u64::MAX, |quota| quota.saturating_sub(rounded(present)));
    more.checked_ilog2().map_or(0, |bits| largest_ring_bytes(settings).min(1 << bits))
}

/// The largest delivery for which the ring of a merged topic may grow: a run with its header.
pub(super) fn largest_run_bytes(settings: &BrokerSettings) -> u64 {
    largest_ring_bytes(settings) / 2
}

/// The largest delivery of a publisher of a merged topic. A run that is cut ends at an end of a delivery that the ring's index knows, one for
/// each sixteenth of the largest delivery, so it can be longer than that by two of them.
/// The quota of the publisher counts the growth of the topic's ring, too.
pub(super) fn largest_merged_delivery_bytes(
    settings: &BrokerSettings,
    present: u64,
    quota: Option<u64>,
) -> u64 {
    let run = largest_ring_within(settings, present, quota.map(|quota| quota / 2)) / 2;
    largest_message(settings).min((run - run / 8).saturating_sub(RUN_HEADER_BYTES as u64))
}

fn largest_message(settings: &BrokerSettings) -> u64 {
    settings.max_message_bytes.saturating_add(RECORD_HEADER_BYTES as u64)
}

/// The history for new subscribers in a ring: as configured, at most half of the ring, by default half.
pub(super) fn retained_bytes(rule: &Rule, default: Option<u64>, size_bytes: u64) -> u64 {
    let half = size_bytes.checked_next_power_of_two().unwrap_or(size_bytes) / 2;
    rule.retain_bytes.or(default).map_or(half, |configured| configured.min(half))
}

/// The largest delivery that [`merge_ring_bytes`] admits where the ring of the merged topic has so many bytes.
pub(super) fn largest_delivery(merged_ring_bytes: u64) -> u64 {
    // A delivery of the merged topic has a quarter of its ring, the ring of a publisher half of that, and a delivery of it half.
    merged_ring_bytes.checked_next_power_of_two().unwrap_or(merged_ring_bytes) / 16
}

/// The ring of a publisher of a merged topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergeRing {
    /// Its size at first, in bytes.
    pub(super) first: u64,
    /// The size that its deliveries need, in bytes.
    pub(super) size: u64,
    /// The largest size.
    pub(super) max_size: u64,
    /// The most bytes of a run, if deliveries are not larger.
    pub(super) max_run: u64,
}

/// The ring for a publisher of a merged topic, as [`merge_ring_bytes`] says; or, where rings grow, as large as its deliveries need.
pub(super) fn merge_ring(
    max_delivery: u64,
    merged_delivery: u64,
    settings: &BrokerSettings,
    grows: bool,
) -> Result<MergeRing, Refused> {
    let fitting = merge_ring_bytes(max_delivery, merged_delivery, settings);
    let needed = max_delivery.saturating_mul(2).checked_next_power_of_two();
    let (size, max_size) = match (fitting, needed) {
        (Ok(size), _) if grows => (size, largest_ring_bytes(settings).max(size)),
        (Ok(size), _) => (size, size),
        (Err(_), Some(needed))
            if grows && max_delivery <= largest_merged_delivery_bytes(settings, 0, None) =>
        {
            (needed, largest_ring_bytes(settings))
        }
        (Err(refused), _) => return Err(refused),
    };
    let most = most_merged(merged_delivery);
    // A ring that has grown leaves room for others, also when it is made anew.
    let first = if grows { size.min(most) } else { size };
    Ok(MergeRing { first, size, max_size, max_run: size.min(most) })
}

/// The largest power of two that leaves room for a run's header in a delivery of the merged topic, whose limit is a power of two.
fn most_merged(merged_delivery: u64) -> u64 {
    (merged_delivery.saturating_sub(RUN_HEADER_BYTES as u64) / 2 + 1).next_power_of_two()
}

/// The size of the ring for a publisher of a merged topic: twice its largest delivery, and at least the configured size. The
/// content of this ring must fit into one delivery of the merged log, of at most `merged_delivery` bytes.
fn merge_ring_bytes(
    max_delivery: u64,
    merged_delivery: u64,
    settings: &BrokerSettings,
) -> Result<u64, Refused> {
    let most = most_merged(merged_delivery);
    let needed = max_delivery.saturating_mul(2).max(4096);
    match needed.checked_next_power_of_two() {
        Some(needed) if needed <= most => {
            let wanted = settings.merge_publisher_ring_bytes.next_power_of_two();
            Ok(needed.max(wanted.min(most)))
        }
        _ => Err(Refused::new(
            RefuseCode::Size,
            format!(
                "deliveries of {max_delivery} bytes need a ring of {needed}; the limit for a publisher here is {most}, so \
                 that the ring fits into a delivery of the merged topic's ring; open the topic with a smaller ring (its \
                 deliveries have at most a quarter of it), or raise the topic's ring_bytes or broker.merge_ring_bytes"
            ),
        )),
    }
}

/// The limits on the filters of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterLimits {
    /// Names and patterns.
    pub(super) filters: usize,
    /// Patterns alone. A new topic may have to be compared with all of them.
    pub(super) patterns: usize,
}

impl FilterLimits {
    /// A part of this process has none.
    pub(super) fn new(settings: &BrokerSettings, is_own: bool) -> Self {
        if is_own {
            return Self { filters: usize::MAX, patterns: usize::MAX };
        }
        Self { filters: settings.max_topics_per_subscriber, patterns: settings.max_patterns_per_subscriber }
    }

    /// The reason for the refusal of a connection that would have too many filters.
    pub(super) fn reason(self, error: &TooManyFilters) -> String {
        let (requested, max, setting) = match error {
            TooManyFilters::Filters(total) => {
                (format!("{total} topics and filters"), self.filters, "max_topics_per_subscriber")
            }
            TooManyFilters::Patterns(total) => {
                (format!("{total} filters with wildcards"), self.patterns, "max_patterns_per_subscriber")
            }
        };
        format!("{requested} were requested; the limit of this broker (broker.{setting}) is {max}")
    }
}

/// The number of filters or patterns that a connection would have.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooManyFilters {
    Filters(usize),
    Patterns(usize),
}

#[cfg(test)]
mod tests {
    use rbmq_wire::TopicFilter;

    use super::*;

    #[test]
    fn a_ring_has_room_for_two_deliveries_and_the_limit_counts_the_rounded_size() {
        let settings =
            BrokerSettings { min_ring_bytes: 4096, max_ring_bytes: 65_536, ..BrokerSettings::default() };
        assert_eq!(ring_bytes(0, 10, &settings), Ok(4096));
        assert_eq!(ring_bytes(10_000, 10_000, &settings), Ok(20_000));
        assert_eq!(ring_bytes(65_536, 10, &settings), Ok(65_536));
        let Refused { code, reason } = ring_bytes(65_537, 10, &settings).unwrap_err();
        assert_eq!(code, RefuseCode::Size);
        assert!(reason.contains("65537 bytes was requested, which takes 131072;"), "{reason}");
        assert!(ring_bytes(u64::MAX, u64::MAX, &settings).is_err());
    }

    #[test]
    fn the_history_has_at_most_half_of_the_ring() {
        let mut rule = Rule::new(TopicFilter::all());
        assert_eq!(retained_bytes(&rule, None, 100_000), 65_536);
        assert_eq!(retained_bytes(&rule, Some(10), 100_000), 10);
        rule.retain_bytes = Some(1 << 40);
        assert_eq!(retained_bytes(&rule, Some(10), 100_000), 65_536);
    }

    #[test]
    fn the_content_of_a_publishers_ring_fits_into_a_merged_delivery() {
        let settings = BrokerSettings { merge_publisher_ring_bytes: 32_768, ..BrokerSettings::default() };
        assert_eq!(merge_ring_bytes(10, 1 << 20, &settings), Ok(32_768));
        assert_eq!(merge_ring_bytes(100_000, 1 << 20, &settings), Ok(262_144));
        assert_eq!(merge_ring_bytes(10, 16_384, &settings), Ok(8192));
        assert!(merge_ring_bytes(10_000, 16_384, &settings).is_err());
        for ring in [1 << 16, 4 << 20, (4 << 20) - 5] {
            let largest = largest_delivery(ring);
            let merged = ring.next_power_of_two() / 4;
            assert!(merge_ring_bytes(largest, merged, &settings).is_ok());
            assert!(merge_ring_bytes(largest + 1, merged, &settings).is_err());
        }
    }
}
