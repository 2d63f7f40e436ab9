//! MQTT 3.1.1 and 5.
//!
//! ```text
//!   connections ── CONNECT ──▶ sessions ── SUBSCRIBE ──▶ routes: filters and who subscribed
//!        │                        ▲                        ▲
//!        └── PUBLISH ──▶ bus ─────┴── on_message ──────────┘      retained messages: the last of each topic
//! ```
//!
//! A PUBLISH goes to the bus in every case, and comes back from there: so all subscribers, of this gateway and elsewhere, get one order. What MQTT says
//! beside topic and payload is in the attributes of the record. Sessions and retained messages are in memory, and in a journal if the broker
//! keeps topics. Then a message is acknowledged when it has come back, and what sessions are to get of it is in the journal.

mod acknowledging;
pub mod codec;
mod connections;
mod delivery;
mod due_will;
mod journal;
mod journaling;
mod kept;
mod machine;
mod message;
mod overflow;
mod own_topics;
mod publishing;
mod recovery;
mod retained;
mod session;
mod settings;
mod shares;
mod state;
mod subscriptions;
mod will;
mod wills;

pub(crate) use journal::{Journal, JournalError};
pub(crate) use settings::{Clock, Overflow, Settings, unix_ms};
pub(crate) use state::Mqtt;

#[cfg(test)]
mod tests;
