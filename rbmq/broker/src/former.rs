//! The places of brokers in the buffers of other brokers, and those that a former process of a broker has left.
//!
//! ```text
//!   process 1 of m0 is killed:   its place is kept for `hold_ms`, and nothing is confirmed as delivered meanwhile
//!   process 2 of m0 subscribes:  it has a place of its own from there on ─▶ the place of process 1 is given up
//! ```
//!
//! A place has the name of the process, which nobody goes on with after its end, that of the member of the cluster, and when the process
//! started: of two processes with one name only the later one takes over. A broker that is no member has no lasting name: its places are kept
//! for their time.

use std::time::SystemTime;

use rocketbufs::{Bid, OutBuffer};
use tracing::info;

use super::subscribers::Subscribers;
use super::tables::Tables;

const PREFIX: &str = "rbmq-broker ";

/// The longest name of a member in the name of a place, which has 255 bytes. A member with a longer one has no lasting name.
const MAX_MEMBER_BYTES: usize = 176;

/// The name of the places of this process.
pub(super) fn place_name(member: Option<&str>, process: u128) -> Vec<u8> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    name(member, since_1970.as_nanos() as u64, process).into_bytes()
}

fn name(member: Option<&str>, started_ns: u64, process: u128) -> String {
    match member.filter(|member| member.len() <= MAX_MEMBER_BYTES) {
        Some(member) => format!("{PREFIX}{member} {started_ns:016x}{process:032x}"),
        None => format!("{PREFIX}{process:032x}"),
    }
}

/// The member and the process of a place. Processes have the order of their start.
fn parts(name: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?.rsplit_once(' ')
}

/// Whether a place is of a former process of the member that another place is of.
fn is_former(one: &[u8], other: &[u8]) -> bool {
    let (Some(one), Some(other)) = (parts(one), parts(other)) else { return false };
    one.0 == other.0 && one.1 < other.1
}

/// A broker has subscribed to a buffer: the places of its former processes are given up, and their connections are closed.
pub(super) fn subscribed(tables: &Tables, subscribers: &Subscribers, conn: u64, bid: Bid, name: &[u8]) {
    let Some(buffer) = tables.out.buffer(bid).filter(|_| parts(name).is_some()) else { return };
    let Some(own) = subscribers.get(conn).filter(|subscriber| subscriber.is_broker()) else { return };
    for former in buffer.subscribers().iter().filter(|one| is_former(&one.name, name)) {
        let former = subscribers.get(former.conn).filter(|former| former.is_broker());
        let former = former.filter(|former| former.identity.user == own.identity.user);
        former.iter().for_each(|former| former.conn.close("this broker was started again, and is connected"));
    }
    give_up(&buffer, conn, name);
}

/// A subscription of a broker has ended: its place is not kept if a later process is there.
pub(super) fn unsubscribed(tables: &Tables, subscribers: &Subscribers, bid: Bid, name: &[u8]) {
    let Some(buffer) = tables.out.buffer(bid).filter(|_| parts(name).is_some()) else { return };
    let is_later = |conn: u64| subscribers.get(conn).is_some_and(|subscriber| subscriber.is_broker());
    let present = buffer.subscribers();
    let later = present.iter().find(|one| is_former(name, &one.name) && is_later(one.conn));
    later.iter().for_each(|later| give_up(&buffer, later.conn, &later.name));
}

fn give_up(buffer: &OutBuffer, conn: u64, name: &[u8]) {
    let count = buffer.forget_former(conn, |other| is_former(other, name));
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
    fn only_the_later_places_of_one_member_follow_its_former_ones() {
        let place = |member, started_ns| name(member, started_ns, u128::from(9 - started_ns));
        let follows = |one: &str, other: &str| is_former(one.as_bytes(), other.as_bytes());
        assert!(follows(&place(Some("c/m0"), 1), &place(Some("c/m0"), 2)));
        assert!(!follows(&place(Some("c/m0"), 2), &place(Some("c/m0"), 1)), "it is the later one");
        assert!(!follows(&place(Some("c/m0"), 1), &place(Some("c/m0"), 1)), "it is the same process");
        assert!(!follows(&place(Some("c/m0"), 1), &place(Some("c/m1"), 2)));
        assert!(!follows(&place(Some("c/m0"), 1), &place(Some("d/m0"), 2)), "a member of another cluster");
        assert!(!follows(&place(None, 1), &place(None, 2)), "nobody knows whether that is one broker");
        assert!(!follows("m0 1", "m0 2") && !is_former(b"rbmq-broker", b"\xff"));
        assert!(!follows(&place(Some("c/m0 m1"), 1), &place(Some("c/m0"), 2)));
        let long = "m".repeat(MAX_MEMBER_BYTES);
        assert!(
            place(Some(&long), 1).len() <= 255 && follows(&place(Some(&long), 1), &place(Some(&long), 2))
        );
        let longer = "m".repeat(MAX_MEMBER_BYTES + 1);
        assert!(!follows(&place(Some(&longer), 1), &place(Some(&longer), 2)), "it is kept for its time");
    }
}
