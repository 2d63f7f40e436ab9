//! Received bytes are decoded or refused, and never panic. Every encoded message decodes to itself.

use proptest::prelude::*;
use rbmq_wire::{
    Control, Credentials, Framing, Hello, Records, RefuseCode, Rejection, ReplayFrom, Role, Secret, Space,
    SubscribeLimits, Topic, Unpack, UnpackError, push_record, run_header,
};
use rbmq_wire::{TopicFilter, TopicName};

fn topic() -> impl Strategy<Value = TopicName> {
    "[a-zA-Z0-9/äß日._-]{1,60}".prop_map(|text| text.parse().expect("only allowed characters"))
}

fn filter() -> impl Strategy<Value = TopicFilter> {
    let level = r"[a-zäß日 ._-]{0,20}|\+";
    proptest::collection::vec(level, 1..4).prop_map(|levels| {
        let text = levels.join("/");
        if text.is_empty() { TopicFilter::all() } else { text.parse().expect("only allowed characters") }
    })
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![Just(Framing::Records), Just(Framing::Raw), Just(Framing::Merged)]
}

fn code() -> impl Strategy<Value = RefuseCode> {
    prop_oneof![
        Just(RefuseCode::Invalid),
        Just(RefuseCode::Limit),
        Just(RefuseCode::Size),
        Just(RefuseCode::BidInUse),
        Just(RefuseCode::Internal),
        Just(RefuseCode::NotAllowed),
        Just(RefuseCode::Elsewhere),
    ]
}

fn replay_from() -> impl Strategy<Value = ReplayFrom> {
    prop_oneof![
        Just(ReplayFrom::Oldest),
        any::<u64>().prop_map(ReplayFrom::Position),
        any::<u64>().prop_map(ReplayFrom::Age),
    ]
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        (any::<u32>(), framing(), any::<u64>(), any::<u64>(), any::<u32>(), topic()).prop_map(
            |(bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic)| Control::Create {
                bid,
                framing,
                ring_bytes,
                max_delivery_bytes,
                min_subscribers,
                topic
            }
        ),
        any::<u32>().prop_map(|bid| Control::Created { bid }),
        any::<(u32, u64)>()
            .prop_map(|(bid, max_delivery_bytes)| Control::Largest { bid, max_delivery_bytes }),
        (any::<u32>(), code(), ".{0,80}").prop_map(|(bid, code, reason)| Control::Refused {
            bid,
            code,
            reason
        }),
        (any::<u32>(), any::<u64>()).prop_map(|(bid, end)| Control::Ended { bid, end }),
        (any::<u32>(), any::<u32>()).prop_map(|(bid, count)| Control::Subscribers { bid, count }),
        proptest::collection::vec(filter(), 0..20).prop_map(|filters| Control::Topics { filters }),
        (any::<u32>(), any::<u128>(), framing(), any::<[bool; 2]>(), any::<u64>(), topic()).prop_map(
            |(bid, epoch, framing, [fresh, kept], max_delivery_bytes, topic)| Control::Topic(Topic {
                bid,
                epoch,
                framing,
                fresh,
                kept,
                max_delivery_bytes,
                topic,
                space: None
            })
        ),
        spaces(),
        chains(),
        (any::<u32>(), topic()).prop_map(|(bid, topic)| Control::TopicGone { bid, topic }),
        (rejection(), ".{0,80}").prop_map(|(what, reason)| Control::Rejected { what, reason }),
        Just(Control::TopicsDone),
        any::<u32>().prop_map(|hold_ms| Control::Hold { hold_ms }),
        kept(),
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
            |(max_lag_bytes, block_timeout_ms, max_hold_ms)| {
                Control::Limits(SubscribeLimits { max_lag_bytes, block_timeout_ms, max_hold_ms })
            }
        ),
    ]
}

fn space() -> impl Strategy<Value = Space> {
    "[a-z/]{0,20}/#".prop_map(|pattern| Space::new(&pattern.parse().expect("a filter")).expect("a prefix"))
}

/// The messages about spaces.
fn spaces() -> impl Strategy<Value = Control> {
    let before = proptest::collection::vec(filter(), 0..20);
    prop_oneof![
        (any::<u32>(), any::<bool>(), space(), before)
            .prop_map(|(bid, more, space, before)| Control::InSpace { bid, more, space, before }),
        (any::<u32>(), any::<u128>(), space()).prop_map(|(bid, epoch, space)| Control::Topic(Topic {
            bid,
            epoch,
            framing: Framing::Merged,
            fresh: false,
            kept: true,
            max_delivery_bytes: 9,
            topic: space.log().clone(),
            space: Some(space),
        })),
    ]
}

/// The messages about chains of brokers.
fn chains() -> impl Strategy<Value = Control> {
    prop_oneof![
        (any::<u32>(), any::<u128>(), any::<u64>()).prop_map(|(bid, epoch, position)| Control::Place {
            bid,
            epoch,
            position
        }),
        (any::<u32>(), any::<u128>(), framing(), topic(), proptest::collection::vec(any::<u128>(), 0..=16))
            .prop_map(|(bid, epoch, framing, topic, path)| Control::TopicVia {
                topic: Topic {
                    bid,
                    epoch,
                    framing,
                    fresh: true,
                    kept: false,
                    max_delivery_bytes: 9,
                    topic,
                    space: None
                },
                path
            }),
        (any::<u32>(), any::<u32>()).prop_map(|(bid, count)| Control::Downstream { bid, count }),
        (any::<u32>(), any::<bool>()).prop_map(|(bid, yes)| Control::Continues { bid, yes }),
    ]
}

/// The messages about kept topics.
fn rejection() -> impl Strategy<Value = Rejection> {
    prop_oneof![Just(Rejection::Rights), Just(Rejection::Limit), Just(Rejection::Withdrawn)]
}

fn kept() -> impl Strategy<Value = Control> {
    prop_oneof![
        (any::<u32>(), any::<[u64; 3]>()).prop_map(|(bid, [position, synced, archived])| Control::Stored {
            bid,
            position,
            synced,
            archived
        }),
        (any::<u32>(), any::<[u64; 3]>()).prop_map(|(bid, [position, synced, archived])| {
            Control::AskStored { bid, position, synced, archived }
        }),
        (any::<u32>(), any::<[bool; 2]>(), ".{0,80}").prop_map(|(bid, [is_of_archive, is_lost], reason)| {
            Control::NotStored { bid, is_of_archive, is_lost, reason }
        }),
        (any::<u32>(), ".{0,80}").prop_map(|(bid, failure)| Control::Disk { bid, failure }),
        (any::<u32>(), replay_from()).prop_map(|(bid, from)| Control::Replay { bid, from }),
        (any::<u32>(), any::<Option<u32>>(), any::<u64>())
            .prop_map(|(bid, replay, start)| Control::Replayed { bid, replay, start }),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(hello.encode(), bytes.clone());
        }
        if let Ok(message) = Control::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes.clone());
        }
        let mut records = Records::new(&bytes);
        let taken: usize = records.by_ref().map(|record| record.len() + 4).sum();
        prop_assert_eq!(records.offset(), taken);
        prop_assert_eq!(records.malformed().is_none(), taken == bytes.len());
    }

    #[test]
    fn bytes_that_begin_like_a_hello_are_decoded_or_refused(rest in proptest::collection::vec(any::<u8>(), 0..80)) {
        for version in [1, 2] {
            let bytes = [&b"RBMQ"[..], &[version], &rest].concat();
            if let Ok((hello, credentials)) = Hello::decode_with(&bytes) {
                prop_assert_eq!(&*hello.encode_with(&credentials), &bytes);
            }
        }
    }

    #[test]
    fn hellos_come_back(publisher in any::<bool>(), client in any::<u128>(), name in ".{0,60}") {
        let role = if publisher { Role::Publisher } else { Role::Subscriber };
        let hello = Hello { role, client, name };
        prop_assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
    }

    #[test]
    fn credentials_come_back_and_cut_ones_are_refused(
        user in ".{1,30}", secret in ".{1,60}", is_token in any::<bool>(),
    ) {
        let secret = Secret::from(secret);
        let credentials = if is_token { Credentials::token(secret) } else { Credentials::password(&user, secret) };
        let hello = Hello { role: Role::Observer, client: 3, name: "n".into() };
        let sent = (hello, credentials.unwrap());
        let bytes = sent.0.encode_with(&sent.1);
        prop_assert!((0..bytes.len()).all(|cut| Hello::decode_with(&bytes[..cut]).is_err()));
        prop_assert_eq!(Hello::decode_with(&bytes).unwrap(), sent);
    }

    #[test]
    fn messages_come_back_and_cut_ones_are_refused(message in control()) {
        let bytes = message.encode();
        prop_assert_eq!(&Control::decode(&bytes).unwrap(), &message);
        // STORED and ASK_STORED without the position of an archive are shorter messages.
        let shorter = match message {
            Control::Stored { bid, position, synced, .. } => Some(Control::Stored { bid, position, synced, archived: 0 }),
            Control::AskStored { bid, position, synced, .. } => Some(Control::AskStored { bid, position, synced, archived: 0 }),
            _ => None,
        };
        for cut in 0..bytes.len() {
            prop_assert!(Control::decode(&bytes[..cut]).map_or(true, |cut| Some(&cut) == shorter.as_ref()));
        }
    }

    #[test]
    fn records_come_back(list in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..50)) {
        let mut bytes = Vec::new();
        list.iter().for_each(|record| push_record(&mut bytes, record));
        let mut records = Records::new(&bytes);
        prop_assert!(records.by_ref().eq(list.iter().map(Vec::as_slice)));
        prop_assert_eq!(records.malformed(), None);
    }

    #[test]
    fn merged_records_come_back_with_their_publishers_whatever_others_write(
        runs in proptest::collection::vec(
            (any::<u32>(), proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6), any::<bool>()),
            0..20,
        )
    ) {
        let (mut bytes, mut expected, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (publisher, list, fault) in &runs {
            let mut run = Vec::new();
            list.iter().for_each(|record| push_record(&mut run, record));
            if *fault {
                run.extend_from_slice(&[0xff; 3]);
                faults.push(*publisher);
            }
            bytes.extend_from_slice(&run_header(*publisher, run.len()).unwrap());
            bytes.extend_from_slice(&run);
            expected.extend(list.iter().map(|record| (*publisher, record.as_slice())));
        }
        let (mut found, mut told) = (Vec::new(), Vec::new());
        for piece in Unpack::merged(&bytes).checked() {
            match piece {
                Ok(piece) => found.push((piece.publisher.unwrap(), piece.record)),
                Err(UnpackError::Publisher { publisher, .. }) => told.push(publisher),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(told, faults);
    }
}
