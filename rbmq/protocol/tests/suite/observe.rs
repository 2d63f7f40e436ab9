//! Messages between observers and the broker decode to themselves; other bytes are refused.

use proptest::prelude::*;
use rbmq_wire::{
    BlockReason, BrokerSummary, BufferStage, BufferStats, Framing, GatewayStats, GroupStats, LimitStats,
    SlowestSubscriber, SubscriptionStats, TopicName, TopicStats,
};
use rbmq_wire::{Observe, SubscriptionSortKey};
use rocketbufs::Policy;

fn topic() -> impl Strategy<Value = TopicName> {
    "[a-zA-Z0-9/äß日._-]{1,60}".prop_map(|text| text.parse().expect("only allowed characters"))
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Block), Just(Policy::Drop), Just(Policy::Disconnect), Just(Policy::Overwrite)]
}

fn stage() -> impl Strategy<Value = BufferStage> {
    use BufferStage::{Closed, Gone, Live, Opening};
    prop_oneof![Just(Opening), Just(Live), Just(Closed), Just(Gone)]
}

fn slowest() -> impl Strategy<Value = SlowestSubscriber> {
    (".{0,40}", policy(), any::<[bool; 2]>(), any::<[u64; 2]>()).prop_map(|(name, policy, flags, n)| {
        SlowestSubscriber {
            name,
            policy,
            offline: flags[0],
            blocks_publisher: flags[1],
            idle_ms: n[0],
            ring_bytes: n[1],
        }
    })
}

fn topic_row() -> impl Strategy<Value = TopicStats> {
    let blocked_by = prop_oneof![
        Just(BlockReason::TooFewSubscribers),
        Just(BlockReason::MergeTableFull),
        Just(BlockReason::Disk)
    ];
    let rest = (any::<Option<u64>>(), proptest::option::of(slowest()), proptest::option::of(blocked_by));
    (topic(), any::<[u32; 5]>(), any::<[u64; 6]>(), rest).prop_map(
        |(topic, c, n, (boundary, slowest, blocked_by))| TopicStats {
            topic,
            publishers: c[0],
            ended: c[1],
            subscribers: c[2],
            offline: c[3],
            alternate_paths: c[4],
            ring_bytes: n[0],
            boundary,
            head_bytes: n[1],
            received_bytes: n[2],
            delivered_bytes: n[3],
            dropped_bytes: n[4],
            max_lag_bytes: n[5],
            slowest,
            blocked_by,
        },
    )
}

fn buffer_row() -> impl Strategy<Value = BufferStats> {
    let who = (".{0,40}", "[0-9.:]{0,20}", any::<bool>(), any::<bool>(), stage());
    let counts = (any::<[u32; 7]>(), any::<Option<u64>>());
    (counts, any::<u128>(), who, any::<[u64; 12]>()).prop_map(
        |((c, retained_from), epoch, (publisher, address, connected, raw, stage), n)| BufferStats {
            bid: c[0],
            epoch,
            publisher,
            address,
            connected,
            framing: if raw { Framing::Raw } else { Framing::Records },
            stage,
            expires_in_ms: n[0],
            start: n[1],
            tail: n[2],
            boundary: n[3],
            head: n[4],
            horizon: n[5],
            capacity_bytes: n[6],
            retain_bytes: n[7],
            max_delivery_bytes: n[8],
            received_bytes: n[9],
            delivered_bytes: n[10],
            dropped_bytes: n[11],
            subscribers: c[1],
            offline: c[2],
            min_subscribers: c[3],
            receivers: c[4],
            retained_from,
            table_entries: c[5],
            max_table_entries: c[6],
        },
    )
}

fn subscription_row() -> impl Strategy<Value = SubscriptionStats> {
    let texts = [".{0,40}", "[0-9.:]{0,20}", ".{0,40}"];
    (any::<u32>(), texts, policy(), any::<bool>(), any::<Option<u64>>(), any::<[u64; 8]>()).prop_map(
        |(wire, texts, policy, offline, retains_from, n)| {
            let mut row =
                SubscriptionStats { wire, policy, offline, retains_from, ..SubscriptionStats::default() };
            [row.client, row.address, row.name] = texts;
            [
                row.conn,
                row.start,
                row.sent,
                row.landed,
                row.consumed,
                row.dropped_bytes,
                row.idle_ms,
                row.expires_in_ms,
            ] = n;
            row
        },
    )
}

fn summary() -> impl Strategy<Value = BrokerSummary> {
    (any::<[u32; 5]>(), any::<[u64; 6]>(), "[a-z0-9.]{0,12}").prop_map(|(c, n, version)| BrokerSummary {
        uptime_ms: n[0],
        version,
        publishers: c[0],
        subscribers: c[1],
        observers: c[2],
        topics: c[3],
        buffers: c[4],
        ring_bytes: n[1],
        max_ring_bytes: n[2],
        received_bytes: n[3],
        delivered_bytes: n[4],
        dropped_bytes: n[5],
    })
}

fn limit_row() -> impl Strategy<Value = LimitStats> {
    (".{0,40}", "[a-z_]{0,20}", any::<[u64; 3]>(), any::<bool>()).prop_map(|(who, resource, n, at_limit)| {
        LimitStats { who, resource, used: n[0], limit: n[1], at_limit, delayed_ms: n[2] }
    })
}

fn gateway_row() -> impl Strategy<Value = GatewayStats> {
    (".{0,40}", any::<bool>(), any::<[u64; 13]>()).prop_map(|(gateway, is_serving, n)| GatewayStats {
        gateway,
        is_serving,
        connections: n[0],
        accepted: n[1],
        turned_away: n[2],
        logins_refused: n[3],
        denied: n[4],
        cut_off: n[5],
        protocol_errors: n[6],
        messages_in: n[7],
        bytes_in: n[8],
        messages_out: n[9],
        bytes_out: n[10],
        dropped: n[11],
        too_slow: n[12],
    })
}

fn sort_key() -> impl Strategy<Value = SubscriptionSortKey> {
    (any::<[u64; 2]>(), any::<u32>(), ".{0,40}").prop_map(|(n, wire, name)| SubscriptionSortKey {
        landed: n[0],
        conn: n[1],
        wire,
        name,
    })
}

fn rows<T: std::fmt::Debug>(row: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::vec(row, 0..8)
}

fn group_row() -> impl Strategy<Value = GroupStats> {
    let name = "[a-z]{1,9}".prop_map(|name| name.parse().expect("a name"));
    (topic(), name, any::<[u64; 12]>(), any::<(u32, u32, u16)>(), any::<[bool; 3]>(), "[a-z]{0,9}").prop_map(
        |(topic, group, numbers, (workers, ack_ms, max_attempts), [ordered, full, failing], dead_letter)| {
            let [
                pending,
                held,
                floor,
                next,
                end,
                delivered,
                acked,
                failed,
                dead,
                lost,
                lost_bytes,
                damaged_bytes,
            ] = numbers;
            GroupStats {
                topic,
                group,
                workers,
                pending,
                held,
                floor,
                next,
                end,
                delivered,
                acked,
                failed,
                dead,
                lost,
                lost_bytes,
                damaged_bytes,
                ack_ms,
                max_attempts,
                dead_letter,
                ordered,
                full,
                failing,
            }
        },
    )
}

fn message() -> impl Strategy<Value = Observe> {
    use proptest::option::of;
    let filter =
        prop_oneof![Just("#"), Just("a/+/b"), Just("a")].prop_map(|text| text.parse().expect("a filter"));
    let request = any::<u32>();
    prop_oneof![
        request.prop_map(|request| Observe::GetSummary { request }),
        (request, of(filter), of(topic())).prop_map(|(request, filter, after)| Observe::GetTopics {
            request,
            filter,
            after
        }),
        (request, topic(), any::<Option<u32>>()).prop_map(|(request, topic, after)| Observe::GetBuffers {
            request,
            topic,
            after
        }),
        (request, any::<u32>(), of(sort_key())).prop_map(|(request, bid, after)| Observe::GetSubscriptions {
            request,
            bid,
            after
        }),
        (request, summary()).prop_map(|(request, summary)| Observe::Summary { request, summary }),
        (request, rows(topic_row()), of(topic())).prop_map(|(request, rows, next)| Observe::TopicsPage {
            request,
            rows,
            next
        }),
        (request, rows(buffer_row()), any::<Option<u32>>())
            .prop_map(|(request, rows, next)| Observe::BuffersPage { request, rows, next }),
        (request, rows(subscription_row()), of(sort_key()))
            .prop_map(|(request, rows, next)| Observe::SubscriptionsPage { request, rows, next }),
        request.prop_map(|request| Observe::GetLimits { request }),
        (request, rows(limit_row())).prop_map(|(request, rows)| Observe::Limits { request, rows }),
        request.prop_map(|request| Observe::GetGateways { request }),
        (request, rows(gateway_row())).prop_map(|(request, rows)| Observe::Gateways { request, rows }),
        request.prop_map(|request| Observe::GetGroups { request }),
        (request, rows(group_row())).prop_map(|(request, rows)| Observe::Groups { request, rows }),
    ]
}

proptest! {
    #[test]
    fn messages_come_back_and_cut_ones_are_refused(message in message()) {
        let bytes = message.encode();
        prop_assert_eq!(Observe::decode(&bytes).unwrap(), message);
        prop_assert!((0..bytes.len()).all(|cut| Observe::decode(&bytes[..cut]).is_err()));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(kind in 0x2f_u8..0x3e, rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [&[kind][..], &rest].concat();
        if let Ok(message) = Observe::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }

    #[test]
    fn rows_are_objects_of_names_and_numbers(topic in topic_row(), buffer in buffer_row(), sub in subscription_row()) {
        for json in [serde_json::to_value(&topic), serde_json::to_value(&buffer), serde_json::to_value(&sub)] {
            prop_assert!(json.unwrap().is_object());
        }
    }
}
