//! The interface between the suite and a transport's own tests.

use crate::contract::{Event, Transport};

/// Makes transports of one kind for the suite.
pub trait Lab {
    /// The transport under test.
    type Link: Transport;

    /// A fresh transport. Called twice per case: all transports of one lab can reach each other.
    fn transport(&mut self) -> Self::Link;

    /// An address to listen on, free for each call.
    fn listen_address(&mut self) -> String;

    /// The address for connecting to a listener, given the address that `listen` returned. A lab with a proxy returns the
    /// proxy's address.
    fn dial_address(&mut self, listening: &str) -> String {
        listening.into()
    }

    /// A well-formed address without a listener.
    fn dead_address(&mut self) -> String;

    /// Polls one transport once. `idle`: the last round had no events, so that the poll may wait for about a millisecond
    /// (or let virtual time pass).
    fn poll(&mut self, link: &mut Self::Link, idle: bool, events: &mut Vec<Event>);

    /// Whether rings are offered to the peer, which then maps them.
    fn maps(&self) -> bool {
        false
    }

    /// About how many bytes the largest case may move. Lower it where each byte is expensive.
    fn bytes(&self) -> u64 {
        4 << 20
    }

    /// The most rounds without an event that a case waits.
    fn patience(&self) -> usize {
        60_000
    }
}
