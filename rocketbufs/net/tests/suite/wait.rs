//! Waiting for an event of a TCP transport.

use std::time::{Duration, Instant};

use rocketnet::tcp::Tcp;
use rocketnet::{Event, Transport};
use testkit::LONG;

/// Polls until `pick` takes an event.
///
/// # Panics
/// After [`LONG`] without such an event.
pub fn wait<T>(link: &mut Tcp, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        let mut events = Vec::new();
        link.poll(Some(Duration::from_millis(1)), &mut events);
        if let Some(found) = events.into_iter().find_map(&mut pick) {
            return found;
        }
    }
    panic!("no such event");
}
