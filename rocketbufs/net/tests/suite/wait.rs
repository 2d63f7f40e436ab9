//! Waiting for an event of a TCP transport.

use std::time::Duration;

use rocketnet::tcp::Tcp;
use rocketnet::{Event, Transport};

/// Polls until `pick` takes an event.
///
/// # Panics
/// After ten seconds without such an event.
pub fn wait<T>(link: &mut Tcp, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    for _ in 0..10_000 {
        let mut events = Vec::new();
        link.poll(Some(Duration::from_millis(1)), &mut events);
        if let Some(found) = events.into_iter().find_map(&mut pick) {
            return found;
        }
    }
    panic!("no such event");
}
