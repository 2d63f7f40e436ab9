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

/// The time for which a publisher stays that publishes nothing. Until then its topics have their messages.
const IDLE: Duration = Duration::from_secs(600);

/// The time that the broker may take for one message.
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
    /// The message cannot be published at the moment, and was not. The reason, for people.
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
    /// Absent (None) if the program has none, or the console changes nothing.
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
    /// The message was not published, or nobody knows.
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
        // The user of a publisher that has lost its connection may be gone: the publisher would ask the broker again and again.
        let is_over = |place: &Place| match place {
            Place::Busy => false,
            Place::Idle(idle) => idle.since + IDLE <= now || !idle.open.publisher.is_connected(),
        };
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use hyper::StatusCode;

    use super::*;

    /// A program whose publishers wait before each message until they may go on, where a test says so.
    #[derive(Default)]
    struct Program {
        connected: AtomicUsize,
        published: Arc<AtomicUsize>,
        waits: Option<Waits>,
        fails: bool,
    }

    #[derive(Clone)]
    struct Waits {
        arrived: SyncSender<()>,
        go_on: Arc<Mutex<Receiver<()>>>,
    }

    struct Fake {
        published: Arc<AtomicUsize>,
        waits: Option<Waits>,
        fails: bool,
    }

    impl Publishing for Program {
        fn connect(&self, token: &str) -> Result<Box<dyn ConsolePublisher>, String> {
            assert!(!token.is_empty());
            self.connected.fetch_add(1, Ordering::Relaxed);
            let (published, waits) = (self.published.clone(), self.waits.clone());
            Ok(Box::new(Fake { published, waits, fails: self.fails }))
        }
    }

    impl ConsolePublisher for Fake {
        fn is_connected(&self) -> bool {
            true
        }

        fn publish(&mut self, _: &TopicName, _: &[u8], _: bool, _: Duration) -> Result<(), NotPublished> {
            if let Some(waits) = &self.waits {
                waits.arrived.send(()).unwrap();
                let _ = waits.go_on.lock().recv();
            }
            if self.fails {
                return Err(NotPublished::Unconfirmed("the broker is away".to_owned()));
            }
            self.published.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn of(user: usize) -> Message {
        let identity = Identity { user: user.to_string(), ..Identity::anonymous() };
        let mut login = Login::anonymous();
        login.identity = Arc::new(identity);
        let (topic, address) = ("a".parse().unwrap(), "192.0.2.1:5000".parse().unwrap());
        Message { topic, text: "hello".to_owned(), is_kept: false, login, address }
    }

    fn publishers(program: &Arc<Program>) -> (Publishers, Vouchers) {
        let vouchers = Vouchers::default();
        (Publishers::new(Some(program.clone()), vouchers.clone()), vouchers)
    }

    #[test]
    fn a_user_has_one_publisher_and_the_oldest_leaves_for_another() {
        let program = Arc::<Program>::default();
        let (all, vouchers) = publishers(&program);
        for user in (0..MAX_PUBLISHERS).chain(0..MAX_PUBLISHERS) {
            all.publish(&of(user), &Audit::off()).unwrap();
        }
        assert_eq!(program.connected.load(Ordering::Relaxed), MAX_PUBLISHERS);
        all.publish(&of(99), &Audit::off()).unwrap();
        assert_eq!((all.places.lock().len(), vouchers.len()), (MAX_PUBLISHERS, MAX_PUBLISHERS));
        // The first one has left, and the second one has not.
        all.publish(&of(1), &Audit::off()).unwrap();
        assert_eq!(program.connected.load(Ordering::Relaxed), MAX_PUBLISHERS + 1);
        all.forget(Instant::now());
        assert_eq!(vouchers.len(), MAX_PUBLISHERS);
        all.forget(Instant::now() + IDLE);
        assert_eq!((all.places.lock().len(), vouchers.len()), (0, 0));
    }

    #[test]
    fn a_user_whose_message_is_on_its_way_waits_and_others_do_not() {
        let ((arrived, arrives), (send, go_on)) = (sync_channel(0), sync_channel(0));
        let waits = Some(Waits { arrived, go_on: Arc::new(Mutex::new(go_on)) });
        let program = Arc::new(Program { waits, ..Program::default() });
        let (all, _) = publishers(&program);
        let all = &all;
        std::thread::scope(|scope| {
            for user in 0..MAX_PUBLISHERS {
                scope.spawn(move || all.publish(&of(user), &Audit::off()).unwrap());
                arrives.recv().unwrap();
            }
            let status = |user| all.publish(&of(user), &Audit::off()).unwrap_err().status;
            assert_eq!(status(3), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(status(99), StatusCode::SERVICE_UNAVAILABLE, "all places are busy");
            drop(send);
        });
        assert_eq!(program.published.load(Ordering::Relaxed), MAX_PUBLISHERS);
    }

    #[test]
    fn a_publisher_that_failed_is_not_used_again() {
        let program = Arc::new(Program { fails: true, ..Program::default() });
        let (all, vouchers) = publishers(&program);
        for tries in 1..3 {
            let refused = all.publish(&of(1), &Audit::off()).unwrap_err();
            assert!(refused.why.contains("subscribers may get it or not"), "{refused:?}");
            assert_eq!((program.connected.load(Ordering::Relaxed), vouchers.len()), (tries, 0));
        }
    }

    /// A log that has no room for the line has none for the message.
    #[test]
    fn nothing_is_published_without_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        let program = Arc::<Program>::default();
        let (all, _) = publishers(&program);
        let mut refused = None;
        while refused.is_none() {
            (0..5_000).for_each(|_| audit.record(&AuditEvent::new("login")));
            refused = all.publish(&of(1), &audit).err();
        }
        assert!(refused.unwrap().why.contains("so nothing was published"));
        drop(audit);
        let log = std::fs::read_to_string(path).unwrap();
        let lines = log.lines().filter(|line| line.contains("\"event\":\"console\"")).count();
        assert_eq!(lines, program.published.load(Ordering::Relaxed));
    }
}
