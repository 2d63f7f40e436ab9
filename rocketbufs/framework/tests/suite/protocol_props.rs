//! Properties of the protocol's encoding: every encoded message decodes to itself. Decoding any bytes never panics, and accepts
//! only bytes that encoding makes.

use proptest::collection::vec;
use proptest::prelude::*;
use rocketbufs::Epoch;
use rocketbufs::proto::{
    Coverage, CoveragePart, Credit, Hello, MAX_HELLO_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES, Message, Start,
    Subscribe, Subscribed, choose_version,
};
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header};

use crate::vectors::fields::{self, BYE_CODES, POLICIES, REFUSE_CODES};

fn hello() -> impl Strategy<Value = Hello> {
    let numbers = any::<(u16, u16, u32, u128, u32, u32)>();
    (numbers, vec(any::<u8>(), 0..=MAX_HELLO_BYTES)).prop_map(|(n, hello)| Hello {
        min_version: n.0,
        max_version: n.1,
        capabilities: n.2,
        instance: n.3,
        heartbeat_ms: n.4,
        max_control_bytes: n.5,
        hello,
    })
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![
        Just(Start::Newest),
        Just(Start::Oldest),
        Just(Start::Last),
        Just(Start::First),
        any::<u64>().prop_map(Start::Ago),
        any::<(u128, u64)>().prop_map(|(epoch, position)| Start::Position(Epoch(epoch), position)),
    ]
}

fn subscribe() -> impl Strategy<Value = Subscribe> {
    let numbers = any::<(u32, u64, u64, u32, u32, bool)>();
    let policy = proptest::sample::select(POLICIES.to_vec());
    (0..CONTROL_WIRE, numbers, policy, start(), vec(any::<u8>(), 0..=MAX_NAME_BYTES)).prop_map(
        |(wire, n, policy, start, name)| Subscribe {
            wire,
            bid: n.0,
            capacity: n.1,
            policy,
            own_memory: n.5,
            start,
            max_lag: n.2,
            block_timeout_ms: n.3,
            hold_ms: n.4,
            name,
        },
    )
}

fn subscribed() -> impl Strategy<Value = Subscribed> {
    (0..CONTROL_WIRE, any::<(u128, u64, bool, bool, bool, u64, u64)>()).prop_map(|(wire, n)| Subscribed {
        wire,
        epoch: Epoch(n.0),
        start: n.1,
        flow_control: n.2,
        restarted: n.3,
        without_slot: n.4,
        capacity: n.5,
        max_delivery: n.6,
    })
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..=MAX_TEXT_BYTES / 4).prop_map(|chars| chars.into_iter().collect())
}

fn credit() -> impl Strategy<Value = Credit> {
    any::<([u64; 5], [u32; 3], [(u64, u32); 6])>().prop_map(
        |([landed, delivered, consumed, grant, covered_from], [receivers, left, lost], parts)| {
            let parts = parts.map(|(since, receivers)| CoveragePart { covered_from: since, receivers });
            let coverage =
                Coverage { receivers, left, lost, covered_from, ..Coverage::default() }.with_parts(parts);
            Credit { landed, delivered, consumed, grant, coverage }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let wire = || 0..CONTROL_WIRE;
    let bye = (proptest::sample::select(BYE_CODES.to_vec()), text());
    let refused = (wire(), proptest::sample::select(REFUSE_CODES.to_vec()), any::<(u64, u64)>());
    prop_oneof![
        hello().prop_map(Message::Hello),
        hello().prop_map(Message::Welcome),
        bye.prop_map(|(code, text)| Message::Bye { code, text }),
        any::<u64>().prop_map(Message::Ping),
        any::<u64>().prop_map(Message::Pong),
        vec(any::<u8>(), 0..512).prop_map(Message::App),
        subscribe().prop_map(Message::Subscribe),
        subscribed().prop_map(Message::Subscribed),
        refused.prop_map(|(wire, code, (a, b))| Message::Refused { wire, code, a, b }),
        wire().prop_map(Message::Unsubscribe),
        wire().prop_map(Message::Unsubscribed),
        (wire(), credit()).prop_map(|(wire, credit)| Message::Credit { wire, credit }),
        (wire(), any::<[u64; 3]>()).prop_map(|(wire, wanted)| Message::Ask { wire, wanted }),
        wire().prop_map(Message::Recall),
        (wire(), any::<u64>()).prop_map(|(wire, at)| Message::Recalled { wire, at }),
        (wire(), any::<u64>()).prop_map(|(wire, max_delivery)| Message::Grown { wire, max_delivery }),
        (wire(), any::<(u64, u64)>()).prop_map(|(wire, (from, to))| Message::Lost { wire, from, to }),
        (wire(), any::<u64>()).prop_map(|(wire, end)| Message::Closed { wire, end }),
        (wire(), any::<u64>()).prop_map(|(wire, end)| Message::Gone { wire, end }),
    ]
}

/// Reading these bytes either fails or gives a message that is written as these bytes.
fn accepts_only_what_encoding_makes(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(message) = Message::decode(bytes) {
        prop_assert_eq!(message.encode(), bytes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn encoded_messages_decode_to_the_same(message in message()) {
        let bytes = message.encode();
        prop_assert_eq!(Message::decode(&bytes), Ok(message.clone()));
        prop_assert_eq!(fields::message(&fields::fields(&message)), message);
    }

    #[test]
    fn any_bytes_are_refused_or_written_back_the_same(bytes in vec(any::<u8>(), 0..128)) {
        accepts_only_what_encoding_makes(&bytes)?;
    }

    #[test]
    fn any_bytes_after_a_type_are_refused_or_written_back_the_same(
        kind in prop_oneof![1_u8..=6, 0x10_u8..=0x19],
        bytes in vec(prop_oneof![Just(0_u8), any::<u8>()], 0..96),
    ) {
        accepts_only_what_encoding_makes(&[&[kind][..], &bytes].concat())?;
    }

    #[test]
    fn a_message_with_bytes_changed_is_refused_or_written_back_the_same(
        message in message(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<proptest::sample::Index>>(),
    ) {
        let mut bytes = message.encode();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        accepts_only_what_encoding_makes(&bytes)?;
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters(text in vec(any::<char>(), 0..2048)) {
        let text: String = text.into_iter().collect();
        let bytes = Message::Bye { code: BYE_CODES[0], text: text.clone() }.encode();
        let Ok(Message::Bye { text: cut, .. }) = Message::decode(&bytes) else {
            return Err(TestCaseError::fail("the message does not decode to itself"));
        };
        prop_assert!(text.starts_with(&cut) && cut.len() <= MAX_TEXT_BYTES);
        prop_assert!(cut.len() == text.len() || cut.len() > MAX_TEXT_BYTES - 4);
    }

    #[test]
    fn every_eight_bytes_are_a_header(bytes in any::<[u8; HEADER_BYTES]>()) {
        prop_assert_eq!(Header::decode(bytes).encode(), bytes);
    }

    #[test]
    fn the_version_chosen_is_the_newest_that_both_speak(ours in any::<(u16, u16)>(), theirs in any::<(u16, u16)>()) {
        let (ours, theirs) = (ours.0..=ours.1, theirs.0..=theirs.1);
        let newest = (0..=u16::MAX).rev().find(|v| ours.contains(v) && theirs.contains(v));
        prop_assert_eq!(choose_version(&ours, &theirs), newest);
    }
}
