//! Sessions against a model: what one end sends, in pieces of any size, is what the other end opens, cut anywhere.

use std::collections::VecDeque;

use proptest::prelude::*;
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{AeadKey, Iv};
use tls13::{Alert, Content, Failure, Keys, MAX_PLAIN, Out, Secrets, Session};

/// Keys that follow from a number.
fn keys(number: u8) -> Keys {
    let (key, iv) = (AeadKey::from([number; 32]), Iv::from([number ^ 0x5a; 12]));
    Keys::new(0, ConnectionTrafficSecrets::Aes256Gcm { key, iv }).unwrap()
}

/// The numbers of the next keys: even ones belong to one direction, odd ones to the other.
struct Numbers(u8, u8);

impl Secrets for Numbers {
    fn next_sending(&mut self) -> Result<Keys, rustls::Error> {
        self.0 = self.0.wrapping_add(2);
        Ok(keys(self.0))
    }

    fn next_receiving(&mut self) -> Result<Keys, rustls::Error> {
        self.1 = self.1.wrapping_add(2);
        Ok(keys(self.1))
    }
}

fn session(sending: u8, receiving: u8, limit: u64, takes_tickets: bool) -> Session {
    let numbers = Box::new(Numbers(sending, receiving));
    Session::new(numbers, keys(sending), keys(receiving), limit, takes_tickets)
}

/// A server and a client.
fn pair(limit: u64) -> [Session; 2] {
    [session(0, 1, limit, false), session(1, 0, limit, true)]
}

/// The bytes of one direction that are on their way, and those that must come out.
#[derive(Default)]
struct Way {
    sealed: Vec<u8>,
    expected: VecDeque<u8>,
}

impl Way {
    fn take(&mut self, out: &mut Out) {
        self.sealed.extend_from_slice(out.waiting());
        out.written(out.waiting().len());
    }

    /// Opens the records within the first `count` bytes.
    fn arrive(&mut self, to: &mut Session, count: usize) {
        let count = count.min(self.sealed.len());
        let mut plain = Vec::new();
        let used = to.receive(&mut self.sealed[..count], &mut plain).unwrap();
        self.sealed.drain(..used);
        let expected: Vec<u8> = self.expected.drain(..plain.len()).collect();
        assert_eq!(plain, expected);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send {
        side: usize,
        size: usize,
    },
    /// As above, placed into the record by the caller.
    Fill {
        side: usize,
        size: usize,
    },
    Arrive {
        side: usize,
        count: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![0..40_usize, 0..3 * MAX_PLAIN];
    let filled = prop_oneof![1..40_usize, 1..=MAX_PLAIN];
    let step = prop_oneof![
        (0..2_usize, size).prop_map(|(side, size)| Step::Send { side, size }),
        (0..2_usize, filled).prop_map(|(side, size)| Step::Fill { side, size }),
        (0..2_usize, 0..60_000_usize).prop_map(|(side, count)| Step::Arrive { side, count }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_that_is_sent_is_opened_once_and_in_order(steps in steps(), limit in 1..9_u64) {
        let mut sessions = pair(limit);
        let mut ways = [Way::default(), Way::default()];
        let mut out = Out::take();
        let mut next = 0_u8;
        let mut bytes = move |size: usize| -> Vec<u8> {
            (0..size).map(|_| { next = next.wrapping_mul(31).wrapping_add(7); next }).collect()
        };
        for step in steps {
            match step {
                Step::Send { side, size } => {
                    let data = bytes(size);
                    sessions[side].send(Content::Data, &data, &mut out).unwrap();
                    ways[side].expected.extend(data);
                    ways[side].take(&mut out);
                }
                Step::Fill { side, size } => {
                    let data = bytes(size);
                    let fill = |room: &mut [u8]| {
                        room[..size].copy_from_slice(&data);
                        size
                    };
                    sessions[side].send_filled(&mut out, fill).unwrap();
                    ways[side].expected.extend(data);
                    ways[side].take(&mut out);
                }
                Step::Arrive { side, count } => ways[side].arrive(&mut sessions[1 - side], count),
            }
        }
        for side in 0..2 {
            sessions[side].end(Alert::CloseNotify, &mut out).unwrap();
            ways[side].take(&mut out);
            ways[side].arrive(&mut sessions[1 - side], usize::MAX);
            prop_assert!(sessions[1 - side].has_ended() && ways[side].expected.is_empty());
        }
    }
}

type Record<'a> = (Content, &'a [u8]);

/// Opens what a peer seals with the first keys of its direction.
fn opened(to: &mut Session, records: &[Record<'_>]) -> Result<Vec<u8>, Failure> {
    let mut from = keys(0);
    let (mut bytes, mut plain) = (Vec::new(), Vec::new());
    for (content, text) in records {
        let mut record = vec![0; text.len() + tls13::OVERHEAD];
        from.seal(*content, text, &mut record).unwrap();
        bytes.extend(record);
    }
    to.receive(&mut bytes, &mut plain).map(|_| plain)
}

#[test]
fn a_client_ignores_tickets_however_they_are_cut() {
    let ticket: Vec<u8> = [&[4, 0, 0, 200][..], &[7; 200]].concat();
    let two = [ticket.clone(), ticket.clone()].concat();
    for cut in [1, 3, 4, 100, 203, 204, 300] {
        let records =
            [(Content::Handshake, &two[..cut]), (Content::Handshake, &two[cut..]), (Content::Data, b"data")];
        assert_eq!(opened(&mut session(1, 0, 99, true), &records).as_deref(), Ok(&b"data"[..]), "{cut}");
        assert_eq!(
            opened(&mut session(1, 0, 99, false), &records),
            Err(Failure::Refused(Alert::UnexpectedMessage)),
            "only servers send tickets"
        );
    }
}

#[test]
fn messages_that_break_the_rules_are_refused() {
    let refused = |records: &[Record<'_>]| opened(&mut session(1, 0, 99, true), records).unwrap_err();
    let update = [24, 0, 0, 1, 0];
    let cases: [(&[Record<'_>], Alert); 7] = [
        (&[(Content::Handshake, &[24, 0, 0, 1, 2])], Alert::IllegalParameter),
        (&[(Content::Handshake, &[update, update].concat())], Alert::UnexpectedMessage),
        (&[(Content::Handshake, &[24, 0]), (Content::Data, b"between")], Alert::UnexpectedMessage),
        (&[(Content::Handshake, &[4, 255, 255, 255])], Alert::DecodeError),
        (&[(Content::Handshake, &[])], Alert::UnexpectedMessage),
        (&[(Content::Handshake, &[1, 0, 0, 0])], Alert::UnexpectedMessage),
        (&[(Content::Alert, &[2])], Alert::DecodeError),
    ];
    for (records, alert) in cases {
        assert_eq!(refused(records), Failure::Refused(alert), "{records:?}");
    }
    assert_eq!(refused(&[(Content::Alert, &[2, 40])]), Failure::Peer(40));
    let empty: Vec<Record<'_>> = vec![(Content::Data, b""); 33];
    assert_eq!(refused(&empty), Failure::Refused(Alert::UnexpectedMessage));
    assert_eq!(opened(&mut session(1, 0, 99, true), &empty[..32]), Ok(Vec::new()));
}

#[test]
fn nothing_is_opened_behind_the_end() {
    let mut to = session(1, 0, 99, true);
    let records = [(Content::Data, &b"data"[..]), (Content::Alert, &[1, 0]), (Content::Data, b"more")];
    assert_eq!(opened(&mut to, &records).as_deref(), Ok(&b"data"[..]));
    assert!(to.has_ended());
}

#[test]
fn a_message_that_may_not_come_does_not_wait_for_its_end() {
    let begins = |takes_tickets, head: &[u8]| {
        opened(&mut session(1, 0, 99, takes_tickets), &[(Content::Handshake, head)]).map(drop)
    };
    let refused = Err(Failure::Refused(Alert::UnexpectedMessage));
    for head in [[24, 1, 255, 255], [24, 0, 0, 2], [24, 0, 0, 0], [4, 1, 255, 255], [1, 0, 0, 1]] {
        assert_eq!(begins(false, &head), refused, "{head:?}");
        assert_eq!(begins(false, &head[..3]), Ok(()), "{head:?}");
    }
    assert_eq!(begins(true, &[4, 1, 255, 255]), Ok(()), "a ticket of a server");
    assert_eq!(begins(true, &[24, 0, 0, 2]), refused);
}
