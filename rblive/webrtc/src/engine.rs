//! The thread of the peers: all viewers, and the streams that they watch.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use str0m::ice::StunMessage;

use crate::counters::Counters;
use crate::feed::{Feed, Frame};
use crate::port::Port;
use crate::session::{End, Joining, Session, Way};
use crate::shared::Shared;
use crate::source::Bell;

/// The largest datagram that is read. Larger ones are cut, and of no use.
const MAX_DATAGRAM: usize = 2_000;

/// The datagrams that are read before frames that are due are sent.
const BATCH: usize = 256;

/// The time between two looks at viewers that are silent.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Engine {
    shared: Arc<Shared>,
    port: Port,
    sessions: HashMap<u64, Session>,
    feeds: HashMap<Arc<str>, Feed>,
    /// The sessions by the addresses that they have answered.
    by_source: HashMap<SocketAddr, u64>,
    looked: Instant,
}

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>, port: Port) -> Self {
        let (sessions, feeds, by_source) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { shared, port, sessions, feeds, by_source, looked: Instant::now() }
    }

    /// Runs until it is asked to stop.
    pub(crate) fn run(mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            self.sleep();
            let inbox = self.shared.take();
            if !inbox.joins.is_empty() {
                self.end_all(|session| session.is_leaving().then_some(End::NeverConnected));
            }
            for joining in inbox.joins {
                self.join(joining);
            }
            for number in inbox.leaves {
                self.end(number, End::Over);
            }
            for stream in inbox.rung {
                self.take(&stream);
            }
            if inbox.stops {
                let all: Vec<_> = self.sessions.keys().copied().collect();
                all.into_iter().for_each(|number| self.end(number, End::Over));
                return;
            }
            for _ in 0..BATCH {
                let Some((from, bytes)) = self.port.receive(&mut buffer) else { break };
                let Some(number) = self.session_of(from, bytes) else {
                    Counters::add(&self.shared.counters.strange_datagrams);
                    continue;
                };
                self.with(number, |session, way| session.receive(from, bytes, way));
            }
            self.send_due();
            self.work();
            self.look();
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&self) {
        let now = Instant::now();
        let frames = self.feeds.values().filter_map(Feed::due);
        let sessions = self.sessions.values().map(|session| session.wakes);
        let next = frames.chain(sessions).chain([self.looked + LOOK]).min().unwrap_or(now);
        let time = Timespec::try_from(next.saturating_duration_since(now)).ok();
        let [own, port] = [self.shared.fd(), self.port.fd()];
        let mut fds =
            [PollFd::from_borrowed_fd(own, PollFlags::IN), PollFd::from_borrowed_fd(port, PollFlags::IN)];
        // A signal or an error is a look too early.
        let _ = poll(&mut fds, time.as_ref());
    }

    /// Calls a session, and ends it if it is over. A panic ends it too, and no other one.
    fn with(&mut self, number: u64, call: impl FnOnce(&mut Session, Way<'_>) -> Result<(), End>) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let way = Way { port: &self.port, counters: &self.shared.counters };
        let called = catch_unwind(AssertUnwindSafe(|| call(session, way)));
        // Whoever was answered knows the password of the session. Of several sessions of an address, the one that asked last has it: a viewer
        // that comes again is not taken for its former self, and one whose address somebody forges has it again with its next request.
        if let Some(source) = session.answered.take().filter(|own| session.sources.contains(own)) {
            self.by_source.insert(source, number);
        }
        let end = match called {
            Ok(Ok(())) => return,
            Ok(Err(end)) => end,
            Err(_) => {
                tracing::error!("a viewer's session ended by a panic");
                End::Failed
            }
        };
        self.end(number, end);
    }

    fn session_of(&self, from: SocketAddr, bytes: &[u8]) -> Option<u64> {
        let is_stun = bytes.first().is_some_and(|kind| *kind < 2);
        if !is_stun {
            return self.by_source.get(&from).copied();
        }
        let message = catch_unwind(|| StunMessage::parse(bytes).ok()).ok()??;
        let (own, _) = message.split_username()?;
        u64::from_str_radix(own, 16).ok().filter(|number| self.sessions.contains_key(number))
    }

    fn join(&mut self, joining: Joining) {
        let Joining { session, source } = joining;
        let stream = session.stream.clone();
        let feed = self.feeds.entry(stream.clone()).or_insert_with(|| {
            let mut source = source;
            let (shared, stream) = (self.shared.clone(), stream.clone());
            source.start(Bell::new(move || shared.ring(&stream)));
            Feed::new(source)
        });
        feed.viewers.push(session.number);
        self.sessions.insert(session.number, session);
        self.take(&stream);
    }

    /// Takes the news of a stream.
    fn take(&mut self, stream: &Arc<str>) {
        let Some(feed) = self.feeds.get_mut(stream) else { return };
        let taken = catch_unwind(AssertUnwindSafe(|| feed.take(Instant::now())));
        let why = match taken {
            Ok(()) => feed.ended.clone(),
            Err(_) => Some("its frames could not be read".to_owned()),
        };
        if let Some(why) = why {
            tracing::info!(stream = &**stream, "viewers by WebRTC are disconnected: {why}");
            let viewers = std::mem::take(&mut feed.viewers);
            viewers.into_iter().for_each(|number| self.end(number, End::Over));
            self.feeds.remove(stream);
        }
    }

    /// Sends the frames whose time has come.
    fn send_due(&mut self) {
        let now = Instant::now();
        let due: Vec<_> =
            self.feeds.iter().filter(|(_, feed)| feed.due().is_some_and(|due| due <= now)).collect();
        let due: Vec<_> = due.into_iter().map(|(stream, _)| stream.clone()).collect();
        for stream in due {
            while let Some((frame, viewers)) = self.next_frame(&stream, now) {
                for number in viewers {
                    self.with(number, |session, way| session.send(&frame, way));
                }
            }
        }
    }

    fn next_frame(&mut self, stream: &Arc<str>, now: Instant) -> Option<(Frame, Vec<u64>)> {
        let feed = self.feeds.get_mut(stream)?;
        let frame = feed.pop(now);
        let late = std::mem::take(&mut feed.late).saturating_mul(feed.viewers.len() as u64);
        self.shared.counters.dropped_frames.fetch_add(late, Ordering::Relaxed);
        Some((frame?, feed.viewers.clone()))
    }

    /// Lets sessions do what is due.
    fn work(&mut self) {
        let now = Instant::now();
        let due = |(number, session): (&u64, &Session)| (session.wakes <= now).then_some(*number);
        let due: Vec<_> = self.sessions.iter().filter_map(due).collect();
        for number in due {
            self.with(number, |session, way| session.work(way));
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        self.end_all(|session| session.look(now).err());
    }

    fn end_all(&mut self, why: impl Fn(&mut Session) -> Option<End>) {
        let over = |(number, session): (&u64, &mut Session)| Some((*number, why(session)?));
        let over: Vec<_> = self.sessions.iter_mut().filter_map(over).collect();
        over.into_iter().for_each(|(number, end)| self.end(number, end));
    }

    /// Ends a session.
    fn end(&mut self, number: u64, end: End) {
        let Some(mut session) = self.sessions.remove(&number) else { return };
        let way = Way { port: &self.port, counters: &self.shared.counters };
        let closed = catch_unwind(AssertUnwindSafe(|| session.close(way)));
        self.shared.sessions.lock().remove(&number);
        for source in &session.sources {
            if self.by_source.get(source) == Some(&number) {
                self.by_source.remove(source);
            }
        }
        if let Some(feed) = self.feeds.get_mut(&session.stream) {
            feed.viewers.retain(|own| *own != number);
            if feed.viewers.is_empty() {
                self.feeds.remove(&session.stream);
            }
        }
        let counters = &self.shared.counters;
        if session.is_connected() {
            counters.viewers.fetch_sub(1, Ordering::Relaxed);
        }
        match end {
            End::Over => {}
            End::NeverConnected => Counters::add(&counters.never_connected),
            End::Silent => Counters::add(&counters.silent),
            End::Failed => Counters::add(&counters.failed),
        }
        if closed.is_err() {
            tracing::error!("the end of a viewer's session panicked");
        }
    }
}
