//! The publishers of the console: one for each user that publishes, at the place that every client of that user has.
//!
//! ```text
//!   a message ─▶ audit log ─▶ publisher of the user ──▶ own listener ─▶ broker: rights, quotas and limits as for all clients
//!                               └ connects with a voucher for the user's login, is used again, and leaves after some idle time
//! ```
//!
//! This crate has no publisher: the program that serves the console brings some ([`Publishing`]).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Audit, AuditEvent, Identity, Login};
use locks::Mutex;
use rbmq_wire::TopicName;

use super::problem::Problem;
use crate::vouchers::{Vouched, Voucher, Vouchers};

/// The most publishers. The one that was idle the longest leaves for another one.
const MAX_PUBLISHERS: usize = 16;

/// How long a publisher stays that publishes nothing. Until then its topics have what they had.
const IDLE: Duration = Duration::from_secs(600);

/// How long the broker may take for one message.
const WITHIN: Duration = Duration::from_secs(4);

/// Opens publishers for the users of a console. The calls come from threads that may wait.
pub trait Publishing: Send + Sync {
    /// Connects a publisher that shows this token at the broker's own listener. A broker that does not answer within a few seconds is an error.
    ///
    /// # Errors
    /// The reason, for people.
    fn connect(&self, token: &str) -> Result<Box<dyn ConsolePublisher>, String>;
}

/// A publisher for one user of a console. Its drop ends it, and what the broker has not accepted then is lost.
pub trait ConsolePublisher: Send {
    /// Whether it is connected.
    fn is_connected(&self) -> bool;

    /// Publishes a message, and waits until the broker has it, and of a topic that is kept, its file.
    ///
    /// # Errors
    /// The message is not there, or nobody knows. The publisher is not used again then.
    fn publish(
        &mut self,
        topic: &TopicName,
        message: &[u8],
        is_kept: bool,
        within: Duration,
    ) -> Result<(), NotPublished>;
}

/// Why a message was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotPublished {
    /// The broker refuses it, and nothing was published. The reason, for people.
    #[error("{0}")]
    Refused(String),
    /// It cannot be published at the moment, and nothing was. The reason, for people.
    #[error("{0}")]
    Unavailable(String),
    /// The broker has not said in time that it has the message. Subscribers may get it.
    #[error("the broker has not confirmed it in time, and subscribers may get it or not: {0}")]
    Unconfirmed(String),
}

/// A message that somebody publishes.
pub(super) struct Message {
    pub(super) topic: TopicName,
    pub(super) text: String,
    pub(super) is_kept: bool,
    pub(super) login: Login,
    pub(super) address: SocketAddr,
}

impl Message {
    /// Writes a line of the audit log: before, or why not. False: it has no room.
    fn recorded(&self, audit: &Audit, reason: Option<&str>) -> bool {
        let address = self.address.to_string();
        audit.try_record(&AuditEvent {
            user: Some(&self.login.identity.user),
            address: Some(&address),
            role: Some("console"),
            operation: Some("publish"),
            topic: Some(self.topic.as_str()),
            count: Some(self.text.len() as u64),
            reason,
            ..AuditEvent::new("console")
        })
    }
}

/// The publishers of a console.
pub(super) struct Publishers {
    /// None: the program has none, or the console changes nothing.
    program: Option<Arc<dyn Publishing>>,
    vouchers: Vouchers,
    places: Mutex<HashMap<Key, Place>>,
}

/// A user, with its roles, and its address.
type Key = (Arc<Identity>, IpAddr);

/// The place of a user at an address.
enum Place {
    /// A message is on its way.
    Busy,
    Idle(Idle),
}

struct Idle {
    open: Open,
    since: Instant,
}

/// A publisher, and what lets it in.
struct Open {
    publisher: Box<dyn ConsolePublisher>,
    _voucher: Voucher,
}

impl Publishers {
    pub(super) fn new(program: Option<Arc<dyn Publishing>>, vouchers: Vouchers) -> Self {
        Self { program, vouchers, places: Mutex::default() }
    }

    /// Whether messages can be published.
    pub(super) fn are_there(&self) -> bool {
        self.program.is_some()
    }

    /// Publishes a message. Its line in the audit log comes before it. May wait for the broker.
    ///
    /// # Errors
    /// It was not published, or nobody knows.
    pub(super) fn publish(&self, message: &Message, audit: &Audit) -> Result<(), Problem> {
        let program = self.program.as_deref().ok_or_else(nobody_publishes)?;
        let mut taken = self.take((message.login.identity.clone(), message.address.ip()))?;
        if !message.recorded(audit, None) {
            let why = "the audit log has no room for a line about it, so nothing was published";
            return Err(Problem::unavailable(why, Duration::from_secs(1)));
        }
        let published = taken.publish(program, &self.vouchers, message);
        published.map_err(|why| {
            let reason = why.to_string();
            // The line before is there: if this one is missing, somebody believes that it was published.
            let _ = message.recorded(audit, Some(&reason));
            match why {
                NotPublished::Refused(why) => Problem::forbidden(&why),
                NotPublished::Unavailable(_) | NotPublished::Unconfirmed(_) => {
                    Problem::unavailable(&reason, Duration::from_secs(1))
                }
            }
        })
    }

    /// Takes the place of a user, or a new one.
    fn take(&self, key: Key) -> Result<Taken<'_>, Problem> {
        let mut places = self.places.lock();
        let wait = Duration::from_secs(1);
        if let Some(place) = places.get_mut(&key) {
            return match std::mem::replace(place, Place::Busy) {
                Place::Busy => Err(Problem::too_many(
                    "your message before is still on its way; try again in a moment",
                    wait,
                )),
                Place::Idle(idle) => Ok(Taken { publishers: self, key, open: Some(idle.open) }),
            };
        }
        let mut leaves = None;
        if places.len() >= MAX_PUBLISHERS {
            let idle = places.iter().filter_map(|(key, place)| match place {
                Place::Idle(idle) => Some((idle.since, key.clone())),
                Place::Busy => None,
            });
            let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else {
                return Err(Problem::unavailable("others publish at the moment; try again", wait));
            };
            leaves = places.remove(&oldest);
        }
        places.insert(key.clone(), Place::Busy);
        drop(places);
        drop(leaves);
        Ok(Taken { publishers: self, key, open: None })
    }

    /// Ends publishers that have had nothing to do for some time.
    pub(super) fn forget(&self, now: Instant) {
        let mut places = self.places.lock();
        let is_over = |place: &Place| matches!(place, Place::Idle(idle) if idle.since + IDLE <= now);
        let over: Vec<_> = places.extract_if(|_, place| is_over(place)).collect();
        drop(places);
        drop(over);
    }
}

/// The place of a user, until the drop.
struct Taken<'a> {
    publishers: &'a Publishers,
    key: Key,
    open: Option<Open>,
}

impl Taken<'_> {
    fn publish(
        &mut self,
        program: &dyn Publishing,
        vouchers: &Vouchers,
        message: &Message,
    ) -> Result<(), NotPublished> {
        // A login that has ended, or another one of the user, has its own voucher.
        let mut open = match self.open.take().filter(|open| open.publisher.is_connected()) {
            Some(open) => open,
            None => {
                let vouched = Vouched {
                    login: message.login.clone(),
                    address: message.address.ip().to_string().into(),
                };
                let voucher = vouchers.issue(vouched).map_err(NotPublished::Unavailable)?;
                let connected = program.connect(voucher.token().expose());
                Open { publisher: connected.map_err(NotPublished::Unavailable)?, _voucher: voucher }
            }
        };
        open.publisher.publish(&message.topic, message.text.as_bytes(), message.is_kept, WITHIN)?;
        self.open = Some(open);
        Ok(())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut places = self.publishers.places.lock();
        match self.open.take() {
            Some(open) => {
                let idle = Idle { open, since: Instant::now() };
                places.insert(self.key.clone(), Place::Idle(idle));
            }
            None => _ = places.remove(&self.key),
        }
    }
}

fn nobody_publishes() -> Problem {
    Problem::forbidden("this console publishes nothing: set http.console = \"write\"")
}
