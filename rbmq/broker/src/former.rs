//! The places of brokers in the buffers of other brokers, and those that a former process of a broker has left.
//!
//! ```text
//!   process 1 of m0 is killed:   its place is kept for `hold_ms`, and nothing is confirmed as delivered meanwhile
//!   process 2 of m0 subscribes:  it has a place of its own from there on ─▶ the place of process 1 is given up
//! ```
//!
//! A place has the name of the process, which nobody goes on with after its end, and that of the member of the cluster. A broker that is no
//! member has no lasting name: its places are kept for their time.

use rocketbufs::{Bid, OutBuffer};
use tracing::info;

use super::subscribers::Subscribers;
use super::tables::Tables;

const PREFIX: &str = "rbmq-broker ";

/// The name of the places of a process.
pub(super) fn place_name(member: Option<&str>, process: u128) -> Vec<u8> {
    match member {
        Some(member) => format!("{PREFIX}{member} {process:032x}").into_bytes(),
        None => format!("{PREFIX}{process:032x}").into_bytes(),
    }
}

/// The member and the process of a place.
fn parts(name: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?.rsplit_once(' ')
}

/// Whether two places are of two processes of one member.
fn is_of_other_process(one: &[u8], other: &[u8]) -> bool {
    let (Some(one), Some(other)) = (parts(one), parts(other)) else { return false };
    one.0 == other.0 && one.1 != other.1
}

/// A broker has subscribed to a buffer: the places of its former processes are given up, and their connections are closed.
pub(super) fn subscribed(tables: &Tables, subscribers: &Subscribers, conn: u64, bid: Bid, name: &[u8]) {
    let Some(buffer) = tables.out.buffer(bid).filter(|_| parts(name).is_some()) else { return };
    if !subscribers.get(conn).is_some_and(|subscriber| subscriber.is_broker()) {
        return;
    }
    for former in buffer.subscribers().iter().filter(|one| is_of_other_process(&one.name, name)) {
        let former = subscribers.get(former.conn).filter(|former| former.is_broker());
        former.iter().for_each(|former| former.conn.close("this broker was started again, and is connected"));
    }
    give_up(&buffer, conn, name);
}

/// A subscription of a broker has ended: its place is not kept if a later process is there.
pub(super) fn unsubscribed(tables: &Tables, subscribers: &Subscribers, bid: Bid, name: &[u8]) {
    let Some(buffer) = tables.out.buffer(bid).filter(|_| parts(name).is_some()) else { return };
    let is_later = |conn: u64| subscribers.get(conn).is_some_and(|subscriber| subscriber.is_broker());
    let present = buffer.subscribers();
    let later = present.iter().find(|one| is_of_other_process(&one.name, name) && is_later(one.conn));
    later.iter().for_each(|later| give_up(&buffer, later.conn, &later.name));
}

fn give_up(buffer: &OutBuffer, conn: u64, name: &[u8]) {
    let count = buffer.forget_former(conn, |other| is_of_other_process(other, name));
    if count > 0 {
        let member = parts(name).map_or("", |(member, _)| member);
        info!(
            "buffer {}: member '{member}' was started again, and its place before is given up",
            buffer.bid()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_places_of_one_member_follow_each_other() {
        let name = |member, process| place_name(member, process);
        let follows = |one: &[u8], other: &[u8]| is_of_other_process(one, other);
        assert!(follows(&name(Some("m0"), 1), &name(Some("m0"), 2)));
        assert!(!follows(&name(Some("m0"), 1), &name(Some("m0"), 1)), "it is the same process");
        assert!(!follows(&name(Some("m0"), 1), &name(Some("m1"), 2)));
        assert!(!follows(&name(None, 1), &name(None, 2)), "nobody knows whether that is one broker");
        assert!(!follows(b"m0 1", b"m0 2") && !follows(b"rbmq-broker", b"\xff"));
        assert!(!follows(&name(Some("m0 m1"), 1), &name(Some("m0"), 2)));
    }
}
