//! Routes: the ways by which a log can come to this broker from other brokers. This module does no I/O.
//!
//! ```text
//!   publisher ──▶ A ──▶ B ──▶ D        offer of B: path [A, B]
//!                  ╲──────────▶ D      offer of A: path [A], a prefix of the other, so B can only have it from A
//! ```
//!
//! A single offer of a log is the current route; the others are alternatives. A position means the same at every broker, so an
//! alternative continues exactly where the current route stopped.

use std::collections::HashMap;

use rbmq_wire::{Control, Topic};
use rocketbufs::{Bid, Epoch, Start};

use super::session_key::SessionKey;
use super::topics::Stage;

/// A buffer of another broker.
pub(super) struct Offer {
    /// The other broker.
    pub(super) key: SessionKey,
    pub(super) topic: Topic,
    /// The brokers that the buffer has passed, from the publisher on.
    pub(super) path: Vec<u128>,
}

impl Offer {
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.topic.epoch)
    }
}

/// The step from one broker to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) from: u128,
    pub(super) to: u128,
}

impl Hop {
    /// The path of a buffer after this hop. None if the path is too long, or contains the next broker already.
    pub(super) fn extend(self, path: &[u128]) -> Option<Vec<u128>> {
        let far = path.len() >= Control::MAX_HOPS;
        (!far && !path.contains(&self.to)).then(|| [path, &[self.from]].concat())
    }
}

/// Whether a path is the beginning of another one.
pub(super) fn is_prefix(path: &[u128], of: &[u128]) -> bool {
    path.len() < of.len() && of.starts_with(path)
}

/// The buffer of this broker whose log is offered again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) path: &'a [u128],
    /// The log has ended as gone here.
    pub(super) gone: bool,
    pub(super) stage: Stage,
}

/// The decision on an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Receive the log by this route, from here.
    Open(Start),
    /// Keep the offer for the loss of the current route.
    KeepAsAlternative,
}

/// Decides about the offer of a log. `follows_merged`: a restarted broker offers the log that follows its old merged log, so
/// that the log is needed from its first byte.
pub(super) fn choose(path: &[u128], epoch: Epoch, known: Option<Known<'_>>, follows_merged: bool) -> Choice {
    match known {
        Some(known) if !known.gone && is_prefix(path, known.path) => Choice::Open(Start::Oldest),
        Some(known) if !known.gone => Choice::KeepAsAlternative,
        Some(Known { stage: Stage::Ended { end, .. }, .. }) => Choice::Open(Start::Position(epoch, end)),
        _ if follows_merged => Choice::Open(Start::First),
        _ => Choice::Open(Start::Oldest),
    }
}

/// The logs of this broker, and the alternative routes to them.
#[derive(Default)]
pub(super) struct Routes {
    /// The newest buffer of each log.
    current: HashMap<Epoch, Bid>,
    /// At most one offer for each upstream broker and buffer there.
    alternatives: HashMap<Epoch, Vec<Offer>>,
}

impl Routes {
    /// The newest buffer of a log.
    pub(super) fn current(&self, epoch: Epoch) -> Option<Bid> {
        self.current.get(&epoch).copied()
    }

    /// Makes a buffer the newest one of a log. `before`: the log for which the buffer was taken until now.
    pub(super) fn set_current(&mut self, epoch: Epoch, bid: Bid, before: Option<Epoch>) {
        if let Some(before) = before {
            self.remove_current(before, bid);
        }
        self.current.insert(epoch, bid);
    }

    /// A buffer is removed.
    pub(super) fn remove_current(&mut self, epoch: Epoch, bid: Bid) {
        if self.current(epoch) == Some(bid) {
            self.current.remove(&epoch);
        }
    }

    /// Keeps an offer, which replaces an older offer of the same broker.
    pub(super) fn add(&mut self, offer: Offer) {
        let offers = self.alternatives.entry(offer.epoch()).or_default();
        offers.retain(|known| known.key != offer.key);
        offers.push(offer);
    }

    /// Takes the alternative with the shortest path.
    pub(super) fn take_shortest(&mut self, epoch: Epoch) -> Option<Offer> {
        let offers = self.alternatives.get_mut(&epoch)?;
        let shortest = (0..offers.len()).min_by_key(|i| offers[*i].path.len())?;
        let offer = offers.swap_remove(shortest);
        if offers.is_empty() {
            self.alternatives.remove(&epoch);
        }
        Some(offer)
    }

    /// Takes the alternative that `is_it` selects.
    pub(super) fn take(&mut self, epoch: Epoch, is_it: impl Fn(&Offer) -> bool) -> Option<Offer> {
        let offers = self.alternatives.get_mut(&epoch)?;
        let found = offers.iter().position(is_it)?;
        let offer = offers.swap_remove(found);
        if offers.is_empty() {
            self.alternatives.remove(&epoch);
        }
        Some(offer)
    }

    /// The logs with alternatives.
    pub(super) fn epochs(&self) -> Vec<Epoch> {
        self.alternatives.keys().copied().collect()
    }

    /// Removes the offers that `is_void` selects.
    pub(super) fn withdraw(&mut self, is_void: impl Fn(&Offer) -> bool) {
        self.alternatives.retain(|_, offers| {
            offers.retain(|offer| !is_void(offer));
            !offers.is_empty()
        });
    }

    /// A log was closed. No route is needed any more.
    pub(super) fn closed(&mut self, epoch: Epoch) {
        self.alternatives.remove(&epoch);
    }

    /// The number of brokers besides `except` that offer the log of a buffer, if the buffer is the newest of the log.
    pub(super) fn alternatives(&self, epoch: Epoch, bid: Bid, except: SessionKey) -> usize {
        let offers = self.alternatives.get(&epoch).filter(|_| self.current(epoch) == Some(bid));
        offers.map_or(0, |offers| offers.iter().filter(|offer| offer.key != except).count())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rbmq_wire::Framing;

    use super::*;

    const EPOCH: Epoch = Epoch(7);

    fn offer(client: u128, path: &[u128]) -> Offer {
        let topic = Topic {
            bid: 1,
            epoch: EPOCH.0,
            framing: Framing::Records,
            fresh: false,
            kept: false,
            max_delivery_bytes: 1,
            topic: "a".parse().unwrap(),
            space: None,
        };
        Offer { key: SessionKey { instance: 1, client }, topic, path: path.to_vec() }
    }

    #[test]
    fn a_hop_ends_loops_and_long_paths() {
        let hop = Hop { from: 1, to: 2 };
        assert_eq!(hop.extend(&[3]), Some(vec![3, 1]));
        assert_eq!(hop.extend(&[2, 3]), None);
        assert_eq!(hop.extend(&[9; Control::MAX_HOPS]), None);
    }

    #[test]
    fn only_a_prefix_replaces_the_current_route() {
        let live = |path| Some(Known { path, gone: false, stage: Stage::Live });
        let of = |path: &[u128], known| choose(path, EPOCH, known, false);
        assert_eq!(of(&[1], None), Choice::Open(Start::Oldest));
        assert_eq!(of(&[1], live(&[1, 2])), Choice::Open(Start::Oldest));
        assert_eq!(of(&[1], live(&[2, 3])), Choice::KeepAsAlternative);
        assert_eq!(of(&[1, 2], live(&[1])), Choice::KeepAsAlternative);
        assert_eq!(of(&[1], live(&[1])), Choice::KeepAsAlternative);
    }

    #[test]
    fn a_log_that_is_gone_continues_at_its_end() {
        let stage = Stage::Ended { until: Instant::now(), end: 40 };
        let gone = Some(Known { path: &[1], gone: true, stage });
        assert_eq!(choose(&[2], EPOCH, gone, true), Choice::Open(Start::Position(EPOCH, 40)));
        assert_eq!(choose(&[2], EPOCH, None, true), Choice::Open(Start::First));
    }

    #[test]
    fn the_shortest_alternative_comes_first() {
        let mut routes = Routes::default();
        routes.add(offer(1, &[1, 2, 3]));
        routes.add(offer(2, &[4, 5]));
        routes.add(offer(1, &[1, 2, 4]));
        routes.set_current(EPOCH, 9, None);
        let of = |routes: &Routes, bid, client| {
            routes.alternatives(EPOCH, bid, SessionKey { instance: 1, client })
        };
        assert_eq!((of(&routes, 9, 0), of(&routes, 9, 1), of(&routes, 8, 0)), (2, 1, 0));
        assert_eq!(routes.take_shortest(EPOCH).unwrap().path, [4, 5]);
        assert_eq!(routes.take_shortest(EPOCH).unwrap().path, [1, 2, 4]);
        assert!(routes.take_shortest(EPOCH).is_none());
        routes.add(offer(1, &[1]));
        routes.withdraw(|offer| offer.key.client == 1);
        assert!(routes.take_shortest(EPOCH).is_none());
    }
}
