//! The effects that a part of the broker requests from other parts.
//!
//! ```text
//!   event ─▶ engine ─▶ part: changes its own state, pushes effects ─▶ engine: executes the effects, in order
//! ```
//!
//! A part knows only its own state and the parts below it. The part returns an effect for everything that concerns other
//! parts; the engine executes each effect completely before the next one, with the effects that follow from it.

use rbmq_wire::{Control, TopicName};
use rocketbufs::{Bid, Epoch, RIn};

use super::routes::Offer;
use super::session_key::SessionKey;

/// A request to the engine.
pub(super) enum Effect {
    /// Send a message about a buffer to its publisher.
    Answer { key: SessionKey, message: Control },
    /// Announce a new buffer to the subscribers of its topic.
    AnnounceNew(Bid),
    /// Report to subscribers whether the log of a buffer continues in another buffer.
    AnnounceContinues(Bid),
    /// Count the subscribers of a buffer, and report the number to its publisher if it has changed.
    CountSubscribers(Bid),
    /// Report the last number again to the publisher of a buffer.
    RepeatCount(Bid),
    /// Report the last number of a merged topic's subscribers to one of its publishers.
    ReportMergedCount { key: SessionKey, bid: Bid, out_bid: Bid },
    /// Remove a buffer from all parts, and report that to subscribers.
    Remove(Bid),
    /// Decide about an offer.
    Consider(Offer),
    /// Receive a log by an alternative route, if there is one.
    OpenAlternative { topic: TopicName, epoch: Epoch },
    /// Continue a subscription at a restarted upstream broker, where the buffer has the id `remote`.
    ContinueAs { rin: RIn, in_bid: Bid, remote: Bid },
    /// A log that this broker wrote goes on elsewhere.
    Leave(Bid),
    /// Receive a log from its owner, which came in this buffer from another broker until now.
    Follow { from: Bid, offer: Offer },
    /// This broker writes the log in this buffer, which came from another one before.
    HasLog { epoch: Epoch, bid: Bid },
    /// Look for another route to the log of a live buffer, to replace the longer one.
    PreferShorter(Bid),
    /// End the buffer with the longer path of a migration.
    EndLongPath { from: Bid, to: Bid },
    /// Check whether a publisher is finished or can be forgotten.
    ReleaseSession(SessionKey),
}

/// Effects in the order of their execution.
pub(super) type Effects = Vec<Effect>;
