//! The paper's strategies, over queues on this machine that lose chosen datagrams.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use cmq::strategy::repair::{Policy, Repair, RepairConfig, Repairable};
use cmq::strategy::request::{Call, CallConfig, CallError, CallState, Caller, Responder, Served};
use cmq::{Cmq, Config, Key, new_rq_with};
use testkit::{LONG, own_addr};

use crate::common::{Fate, Proxy};

fn queue<T>() -> Cmq<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    new_rq_with("127.0.0.1:0", Config::immediate()).expect("a queue on loopback")
}

fn fast() -> CallConfig {
    CallConfig::default().timeout(Duration::from_millis(50))
}

/// No call is lost because the machine is busy.
fn patient() -> CallConfig {
    CallConfig::default().max_attempts(400)
}

#[test]
fn calls_are_pending_then_answered_or_lost() {
    let responder: Responder<u32, String> = Responder::new(queue());
    let caller: Caller<u32, String> = Caller::new(queue(), patient());
    let hasty: Caller<u32, String> = Caller::new(queue(), fast());
    let to = (responder.queue().local_addr(), 0);
    let pending = [0, 2].map(|n| caller.call(to, n).expect("room"));
    assert!(pending.iter().all(|pending| pending.state() == CallState::Pending));
    // This request is never answered.
    let unanswered = hasty.call(to, 1).expect("room");
    while pending.iter().any(|pending| pending.state() == CallState::Pending) {
        responder.serve(Some(Duration::from_millis(10)), |n, _| (n != 1).then(|| n.to_string()));
    }
    assert_eq!(pending[0].wait(Some(LONG)), CallState::Answered("0".into()));
    assert_eq!(pending[1].wait(Some(LONG)), CallState::Answered("2".into()));
    assert_eq!(unanswered.wait(Some(LONG)), CallState::Lost);
    assert_eq!(pending[0].state(), CallState::Answered("0".into()), "the state can be read again");
    assert_eq!([caller.outstanding(), hasty.outstanding()], [2, 1]);
    drop((pending, unanswered));
    assert_eq!([caller.outstanding(), hasty.outstanding()], [0, 0]);
}

#[test]
fn a_lost_request_is_sent_again() {
    let responder: Responder<u32, u32> = Responder::new(queue());
    // The first datagram is lost.
    let proxy = Proxy::start(responder.queue().local_addr(), |number, _| match number {
        0 => Fate::Lost,
        _ => Fate::Passes,
    });
    let caller: Caller<u32, u32> = Caller::new(queue(), fast().max_attempts(4000));
    let pending = caller.call((proxy.addr(), 0), 20).expect("room");
    let answering = std::thread::spawn(move || {
        while responder.serve(Some(LONG), |n, _| Some(n + 1)) != Served::Answered {}
        responder
    });
    assert_eq!(pending.wait(Some(LONG)), CallState::Answered(21));
    drop(answering.join());
}

#[test]
fn several_threads_wait_for_their_answers() {
    let responder: Responder<u32, u32> = Responder::new(queue());
    let caller: Caller<u32, u32> = Caller::new(queue(), patient());
    let to = (responder.queue().local_addr(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A request that waited for long comes twice.
            let mut asked = HashSet::new();
            while asked.len() < 400 {
                let mut answer = |n| {
                    asked.insert(n);
                    Some(n * 2)
                };
                assert_ne!(responder.serve(Some(LONG), |n, _| answer(n)), Served::None);
            }
        });
        for thread in 0..4 {
            let caller = &caller;
            scope.spawn(move || {
                for n in 0..100 {
                    let pending = caller.call(to, thread * 1000 + n).expect("room");
                    assert_eq!(pending.wait(Some(LONG)), CallState::Answered(2 * (thread * 1000 + n)));
                }
            });
        }
    });
}

#[test]
fn an_address_is_sent_no_more_than_it_sent() {
    let responder: Responder<u32, Vec<u8>> = Responder::new(queue());
    let to = (responder.queue().local_addr(), 0);
    let caller: Caller<u32, Vec<u8>> = Caller::new(queue(), fast().max_response_bytes(10).max_attempts(1));
    let pending = caller.call(to, 1).expect("room");
    assert_eq!(responder.serve(Some(LONG), |_, _| Some(vec![0; 100])), Served::TooLarge);
    assert_eq!(pending.wait(Some(LONG)), CallState::Lost);
    // A request without padding gets no response.
    let stranger: Cmq<Call<u32, Vec<u8>>> = queue();
    let question = Call::Request { id: 1, request: 1, padding: Vec::new() };
    stranger.cw_push(to, &question).expect("room");
    assert_eq!(responder.serve(Some(LONG), |_, _| Some(Vec::new())), Served::TooLarge);
}

#[test]
fn a_response_from_another_address_is_ignored() {
    let caller: Caller<u32, u32> = Caller::new(queue(), fast().max_attempts(1));
    let asked: Cmq<Call<u32, u32>> = queue();
    let stranger: Cmq<Call<u32, u32>> = queue();
    let pending = caller.call((asked.local_addr(), 0), 1).expect("room");
    let (call, from) = asked.pop_timeout(LONG).expect("the request arrived");
    let Call::Request { id, .. } = call else { panic!("{call:?}") };
    stranger.cw_push(from, &Call::Response { id, response: 666 }).expect("room");
    assert_eq!(pending.wait(Some(LONG)), CallState::Lost);
}

/// A responder knows the epoch of a caller and the ids of its own requests. The ids of other requests, which
/// a stranger would need for a false response, follow from neither.
#[test]
fn ids_do_not_follow_from_others() {
    let caller: Caller<u32, u32> = Caller::new(queue(), patient());
    let asked: Cmq<Call<u32, u32>> = queue();
    let to = (asked.local_addr(), 0);
    let _pending: Vec<_> = (0..4).map(|n| caller.call(to, n).expect("room")).collect();
    let numbers: Vec<u64> = (0..4)
        .map(|_| match asked.pop_timeout(LONG).expect("the request arrived").0 {
            Call::Request { id, .. } => id,
            call @ Call::Response { .. } => panic!("{call:?}"),
        })
        .collect();
    // Steps of reversible generators: a constant distance, a mixed one, and the epoch.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |n: u64| {
        let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ (n >> 31)
    };
    let epoch = asked.senders_at(caller.queue().local_addr())[0].epoch;
    for turn in 0..64 {
        assert!(!numbers.contains(&mix(epoch.rotate_left(turn).wrapping_add(STEP))));
    }
    assert_ne!(numbers[1].wrapping_sub(numbers[0]), numbers[2].wrapping_sub(numbers[1]));
}

/// The token differs for each receiver, and does not follow from the epoch.
#[test]
fn a_receiver_knows_only_its_own_token() {
    let sender: Repair<u64> = Repair::new(queue(), RepairConfig::default());
    let tokens: Vec<u32> = (0..2)
        .map(|_| {
            let receiver: Cmq<Repairable<u64>> = queue();
            sender.push((receiver.local_addr(), 0), 0, &1).expect("room");
            let (message, from) = receiver.pop_timeout(LONG).expect("loopback");
            let Repairable::Message { token, .. } = message else { panic!("{message:?}") };
            let epoch = receiver.senders_at(from.addr)[0].epoch;
            assert!((0..64).all(|turn| epoch.rotate_left(turn) as u32 != token));
            token
        })
        .collect();
    assert_ne!(tokens[0], tokens[1]);
}

/// A mapped IPv4 address, as an IPv6 socket takes it and as its responses arrive.
#[test]
fn a_response_from_a_mapped_address_is_accepted() {
    let responder: Responder<u32, u32> = Responder::new(queue());
    let port = responder.queue().local_addr().port();
    let asking = new_rq_with("[::]:0", Config::immediate()).expect("a queue for both versions of IP");
    let caller: Caller<u32, u32> = Caller::new(asking, patient());
    let mapped: std::net::SocketAddr = format!("[::ffff:127.0.0.1]:{port}").parse().expect("an address");
    let pending = caller.call((mapped, 0), 1).expect("room");
    assert_eq!(responder.serve(Some(LONG), |n, _| Some(n + 1)), Served::Answered);
    assert_eq!(pending.wait(Some(LONG)), CallState::Answered(2));
    assert_eq!(caller.queue().senders_at(mapped).len(), 1);
}

#[test]
fn outstanding_calls_are_limited() {
    let caller: Caller<u32, u32> = Caller::new(queue(), patient().max_outstanding(2));
    let unused = (own_addr().parse::<SocketAddr>().expect("an address"), 0);
    let one = caller.call(unused, 1).expect("room");
    let _other = caller.call(unused, 2).expect("room");
    assert_eq!(caller.call(unused, 3).expect_err("no room"), CallError::Outstanding(2));
    drop(one);
    caller.call(unused, 3).expect("room again");
}

/// Runs receiver and sender until no message is missing and nothing more arrives.
fn settle(sender: &Repair<u64>, receiver: &Repair<u64>, key: Key) -> Vec<(u64, u64, bool)> {
    let mut popped = Vec::new();
    let mut quiet = 0;
    while quiet < 10 {
        sender.notify_end(key).expect("room");
        quiet += 1;
        while let Some(got) = receiver.pop_timeout(Duration::from_millis(10)) {
            popped.push((got.slot, got.message, got.repaired));
            quiet = 0;
        }
        assert_eq!(sender.pop_timeout(Duration::from_millis(10)), None, "only requests come");
        if receiver.missing() > 0 {
            quiet = 0;
        }
    }
    popped
}

#[test]
fn replay_brings_the_same_messages() {
    let config = RepairConfig::default().request_interval(Duration::from_millis(5)).max_repairs(100);
    let (sender, receiver) = (Repair::new(queue(), config), Repair::new(queue(), config));
    // Every third datagram is lost, also of replays and of the last messages.
    let proxy = Proxy::start(receiver.queue().local_addr(), |number, _| match number % 3 {
        2 => Fate::Lost,
        _ => Fate::Passes,
    });
    let key = Key::new(proxy.addr(), 0);
    for n in 0..300 {
        sender.push(key, 0, &n).expect("room");
    }
    let popped = settle(&sender, &receiver, key);
    let mut messages: Vec<u64> = popped.iter().map(|&(_, message, _)| message).collect();
    messages.sort_unstable();
    assert_eq!(messages, (0..300).collect::<Vec<u64>>(), "each once");
    assert!(popped.iter().filter(|(_, _, repaired)| *repaired).count() >= 99);
    assert_eq!(receiver.unrecoverable(), 0);
}

#[test]
fn replacement_brings_the_newest_values() {
    let policy = Policy::Replace { slots: 10 };
    let config = RepairConfig::default().policy(policy).request_interval(Duration::from_millis(5));
    let (sender, receiver) = (Repair::new(queue(), config), Repair::new(queue(), config));
    // Messages 10 to 29 are lost: two values of each slot.
    let proxy = Proxy::start(receiver.queue().local_addr(), |number, _| match number {
        10..=29 => Fate::Lost,
        _ => Fate::Passes,
    });
    let key = Key::new(proxy.addr(), 0);
    for n in 0..30 {
        sender.push(key, n % 10, &n).expect("room");
    }
    let popped = settle(&sender, &receiver, key);
    assert_eq!(popped.len(), 20, "the first value of each slot, and the last: {popped:?}");
    assert!(popped[10..].iter().all(|&(slot, message, repaired)| repaired && message == 20 + slot));
    assert_eq!(receiver.unrecoverable(), 10, "replaced messages are unavailable");
}

/// A forged address receives no more bytes of requests than arrived from there, however many senders are
/// claimed.
#[test]
fn requests_have_no_more_bytes_than_the_address_sent() {
    let receiver: Repair<u64> = Repair::new(queue(), RepairConfig::default());
    let stranger: Cmq<Repairable<u64>> = queue();
    let to = receiver.queue().local_addr();
    for number in 0..300 {
        // Each message claims to be of another sender, which sent a hundred messages before.
        let token = number % 100;
        let claim = Repairable::Message { token, number: 100, repeated: false, slot: 0, message: 0 };
        stranger.cw_push((to, number), &claim).expect("room");
        // Messages are received one at a time, since the socket's buffer does not hold all.
        receiver.pop_timeout(LONG).expect("loopback");
    }
    // Repeated requests count too.
    assert_eq!(receiver.pop_timeout(Duration::from_millis(250)), None);
    let sent: u64 =
        receiver.queue().senders_at(stranger.local_addr()).iter().map(|sender| sender.bytes).sum();
    drop(receiver);
    let asked: Vec<_> = std::iter::from_fn(|| stranger.pop_timeout(Duration::from_millis(100))).collect();
    for (question, _) in &asked {
        let Repairable::Missing { token: 0..100, gaps } = question else { panic!("{question:?}") };
        assert_eq!(*gaps, [(0, 100)], "each request has a gap");
    }
    let received = stranger.senders_at(to)[0].bytes + 48 * stranger.stats().datagrams;
    assert!(received <= sent, "{received} bytes for {sent}");
    assert!(received > sent * 3 / 4, "{received} bytes where {sent} were allowed: {} requests", asked.len());
}
