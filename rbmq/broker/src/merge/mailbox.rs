//! The mailbox of a merged topic: the events that threads leave, and the topic's state while no thread works.
//!
//! ```text
//!               mailbox                                       owner
//!   post ──▶ ┌──────────────────┐  ── state, all events ──▶  handles them ──┐
//!   post ──▶ │ events │ state ? │                                           │
//!            └──────────────────┘  ◀── state ── no more events came ────────┘
//! ```
//!
//! The thread that takes the state out of the mailbox owns the topic until it puts the state back. No other thread has
//! the state, or waits for it; it leaves its event, and the owner takes that before it goes. So a topic has one owner at a
//! time, and one lock that is held for some instructions.
//!
//! Who becomes the owner: with [`Owners::Anyone`] the thread that leaves an event while there is no owner, so that no event needs
//! a wake-up; with [`Owners::Called`] one thread alone, which is called for the first event.
//!
//! The mailbox is bounded: the events of the topic are in it at most once, and those of a publisher at most once for each kind.

use std::mem;

use locks::{Condvar, Mutex};

use super::merger::Note;
use super::table::TableLoad;

/// Who handles the events of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owners {
    /// The thread that leaves an event.
    Anyone,
    /// A thread that is called.
    Called,
}

/// An event of a topic. `J` is what a publisher brings that joins.
#[derive(Debug)]
pub(super) enum Event<J> {
    /// A publisher joins.
    Join(u32, J),
    /// A publisher has news.
    Note(Note),
    /// The ring may have room, or the disk may work again.
    Room,
    /// Subscribers have made progress that a publisher waits for.
    Progress,
    /// The status is to be made anew.
    Status,
    /// Old data is to be removed from the disk.
    Retention,
}

/// News of publishers, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News<J> {
    Join(u32, J),
    Note(Note),
}

impl<J> News<J> {
    fn number(&self) -> u32 {
        match self {
            Self::Join(number, _) => *number,
            Self::Note(note) => note.number(),
        }
    }
}

/// All events that were left since the last owner took them.
#[derive(Debug)]
pub(super) struct Events<J> {
    pub(super) news: Vec<News<J>>,
    pub(super) room: bool,
    pub(super) progress: bool,
    pub(super) status: bool,
    pub(super) retention: bool,
}

impl<J> Default for Events<J> {
    fn default() -> Self {
        Self { news: Vec::new(), room: false, progress: false, status: false, retention: false }
    }
}

impl<J> Events<J> {
    fn add(&mut self, event: Event<J>) {
        match event {
            Event::Join(number, joining) => self.news.push(News::Join(number, joining)),
            Event::Note(note) => self.add_note(note),
            Event::Room => self.room = true,
            Event::Progress => self.progress = true,
            Event::Status => self.status = true,
            Event::Retention => self.retention = true,
        }
    }

    /// The signals of a publisher see to it that its arrivals and questions come once.
    fn add_note(&mut self, note: Note) {
        match note {
            Note::Arrived(_) | Note::Asked(_) | Note::AskedDisk(_) | Note::Lacks(..) | Note::Stop(_) => {}
            // The first one counts: the questions behind it are answered afterwards.
            Note::Again(_) => {
                if self.news.iter().any(|news| matches!(news, News::Note(other) if *other == note)) {
                    return;
                }
            }
            // The last one counts.
            Note::Finish(_) | Note::Resume(_) => {
                self.news.retain(|news| !matches!(news, News::Note(other) if *other == note));
            }
            Note::Remove(number) => {
                let first = self.news.iter().find(|news| news.number() == number);
                // A publisher whose joining was not handled is not known.
                let is_known = !matches!(first, Some(News::Join(..)));
                self.news.retain(|news| news.number() != number);
                if !is_known {
                    return;
                }
            }
        }
        self.news.push(News::Note(note));
    }

    fn is_empty(&self) -> bool {
        self.news.is_empty() && !(self.room || self.progress || self.status || self.retention)
    }
}

/// What observers see of a topic.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Status {
    /// The load of the table.
    pub(super) load: TableLoad,
    /// The disk failed at the last attempt.
    pub(super) is_failing: bool,
}

struct Mail<S, J> {
    events: Events<J>,
    /// None while the topic has an owner, and after the end.
    state: Option<Box<S>>,
    /// The thread that is called was called, and has not come yet.
    called: bool,
    closed: bool,
    /// The owner makes the status anew.
    makes_status: bool,
    status: Status,
}

impl<S, J> Mail<S, J> {
    fn take_events(&mut self) -> Events<J> {
        self.makes_status = self.events.status;
        mem::take(&mut self.events)
    }
}

/// The mailbox.
pub(super) struct Mailbox<S, J> {
    owners: Owners,
    mail: Mutex<Mail<S, J>>,
    /// The state is in the mailbox again, or the status was made anew.
    changed: Condvar,
}

/// What the thread that left an event does next.
pub(super) enum Posted<'a, S, J> {
    /// It owns the topic now.
    Owns(Owner<'a, S, J>),
    /// It calls the thread that owns the topic.
    Calls,
    /// Nothing: another thread handles the event.
    Nothing,
}

impl<S, J> Mailbox<S, J> {
    pub(super) fn new(owners: Owners, state: S, status: Status) -> Self {
        let mail = Mail {
            events: Events::default(),
            state: Some(Box::new(state)),
            called: false,
            closed: false,
            makes_status: false,
            status,
        };
        Self { owners, mail: Mutex::new(mail), changed: Condvar::new() }
    }

    /// Leaves an event.
    pub(super) fn post(&self, event: Event<J>) -> Posted<'_, S, J> {
        let mut mail = self.mail.lock();
        if mail.closed {
            return Posted::Nothing;
        }
        mail.events.add(event);
        match self.owners {
            Owners::Called if mem::replace(&mut mail.called, true) => Posted::Nothing,
            Owners::Called => Posted::Calls,
            Owners::Anyone => self.take(&mut mail).map_or(Posted::Nothing, Posted::Owns),
        }
    }

    /// The thread that was called comes. None after the end.
    pub(super) fn enter(&self) -> Option<Owner<'_, S, J>> {
        let mut mail = self.mail.lock();
        mail.called = false;
        self.take(&mut mail)
    }

    fn take(&self, mail: &mut Mail<S, J>) -> Option<Owner<'_, S, J>> {
        let state = mail.state.take()?;
        Some(Owner { mailbox: self, state: Some(state), events: mail.take_events() })
    }

    fn made_status(&self, mail: &mut Mail<S, J>) {
        if mem::take(&mut mail.makes_status) {
            self.changed.notify_all();
        }
    }

    /// What the last owner has seen. After [`Event::Status`], what was true at that event or later.
    pub(super) fn status(&self) -> Status {
        let mut mail = self.mail.lock();
        while (mail.events.status || mail.makes_status) && !mail.closed {
            self.changed.wait(&mut mail);
        }
        mail.status
    }

    /// Takes no event any more, and gives out the state, once the owner has put it back. None at the second call.
    pub(super) fn close(&self) -> Option<Box<S>> {
        let mut mail = self.mail.lock();
        if mem::replace(&mut mail.closed, true) {
            return None;
        }
        let events = mem::take(&mut mail.events);
        self.changed.notify_all();
        while mail.state.is_none() {
            self.changed.wait(&mut mail);
        }
        let state = mail.state.take();
        drop(mail);
        drop(events);
        state
    }
}

/// A thread that owns a topic. It puts the state back when it is dropped, also by a panic.
pub(super) struct Owner<'a, S, J> {
    mailbox: &'a Mailbox<S, J>,
    state: Option<Box<S>>,
    events: Events<J>,
}

impl<S, J> Owner<'_, S, J> {
    /// Has the events handled, and those that come meanwhile. A thread that is called handles no more than it found: it is called
    /// again for the rest, so that other topics have their turn.
    pub(super) fn run(mut self, mut handle: impl FnMut(&mut S, Events<J>) -> Status) {
        let mailbox = self.mailbox;
        while let Some(state) = &mut self.state {
            let status = handle(state, mem::take(&mut self.events));
            let mut mail = mailbox.mail.lock();
            mail.status = status;
            if mailbox.owners == Owners::Called || mail.closed || mail.events.is_empty() {
                self.put_back(&mut mail);
            } else {
                mailbox.made_status(&mut mail);
                self.events = mail.take_events();
            }
        }
    }

    /// Has the events handled that there are, and those for which somebody waits, as `handle` or the mailbox says. Returns whether others came
    /// meanwhile, which wait for the next owner.
    pub(super) fn run_once(mut self, mut handle: impl FnMut(&mut S, Events<J>) -> (Status, bool)) -> bool {
        let mailbox = self.mailbox;
        loop {
            let Some(state) = &mut self.state else { return false };
            let (status, goes_on) = handle(state, mem::take(&mut self.events));
            let mut mail = mailbox.mail.lock();
            mail.status = status;
            let are_left = !mail.closed && !mail.events.is_empty();
            if !are_left || !(goes_on || mail.events.status) {
                self.put_back(&mut mail);
                return are_left;
            }
            mailbox.made_status(&mut mail);
            self.events = mail.take_events();
        }
    }

    fn put_back(&mut self, mail: &mut Mail<S, J>) {
        mail.state = self.state.take();
        self.mailbox.made_status(mail);
        if mail.closed {
            self.mailbox.changed.notify_all();
        }
    }
}

impl<S, J> Drop for Owner<'_, S, J> {
    fn drop(&mut self) {
        if self.state.is_some() {
            let mailbox = self.mailbox;
            self.put_back(&mut mailbox.mail.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn post(mailbox: &Mailbox<u32, ()>, note: Note, handle: impl FnMut(&mut u32, Events<()>) -> Status) {
        if let Posted::Owns(owner) = mailbox.post(Event::Note(note)) {
            owner.run(handle);
        }
    }

    #[test]
    fn an_event_that_is_left_while_another_is_handled_is_handled_too() {
        let mailbox = Mailbox::new(Owners::Anyone, 0, Status::default());
        let mut seen = Vec::new();
        post(&mailbox, Note::Arrived(1), |count, events| {
            *count += 1;
            if *count == 1 {
                assert!(matches!(mailbox.post(Event::Note(Note::Arrived(2))), Posted::Nothing));
                assert!(matches!(mailbox.post(Event::Room), Posted::Nothing));
            }
            seen.push((events.news, events.room));
            Status::default()
        });
        let note = |number| vec![News::Note(Note::Arrived(number))];
        assert_eq!(seen, [(note(1), false), (note(2), true)]);
        assert_eq!(mailbox.close().as_deref(), Some(&2));
        assert!(mailbox.close().is_none() && mailbox.enter().is_none());
        assert!(matches!(mailbox.post(Event::Room), Posted::Nothing));
    }

    #[test]
    fn a_thread_is_called_once_for_all_that_it_finds() {
        let mailbox = Mailbox::<_, ()>::new(Owners::Called, 0, Status::default());
        assert!(matches!(mailbox.post(Event::Progress), Posted::Calls));
        assert!(matches!(mailbox.post(Event::Retention), Posted::Nothing));
        mailbox.enter().unwrap().run(|_, events| {
            assert!(events.progress && events.retention && !events.room);
            assert!(matches!(mailbox.post(Event::Room), Posted::Calls), "while it works");
            Status::default()
        });
        mailbox.enter().unwrap().run(|_, events| {
            assert!(events.room && !events.progress);
            Status::default()
        });
    }

    #[test]
    fn a_mailbox_is_bounded() {
        let mailbox = Mailbox::<(), ()>::new(Owners::Called, (), Status::default());
        let left = |note| drop(mailbox.post(Event::Note(note)));
        for number in 0..1000 {
            // Publishers that come and go, while the owner waits for a disk.
            drop(mailbox.post(Event::Join(number, ())));
            left(Note::Arrived(number));
            left(Note::Remove(number));
        }
        assert!(mailbox.mail.lock().events.news.is_empty());
        for _ in 0..100 {
            left(Note::Finish(1));
            left(Note::Resume(1));
            left(Note::Finish(2));
        }
        let news = |notes: &[Note]| notes.iter().copied().map(News::Note).collect::<Vec<_>>();
        let last = [Note::Finish(1), Note::Resume(1), Note::Finish(2)];
        assert_eq!(mailbox.mail.lock().events.news, news(&last));
        left(Note::Remove(1));
        drop(mailbox.post(Event::Join(1, ())));
        left(Note::Remove(1));
        assert_eq!(mailbox.mail.lock().events.news, news(&[Note::Finish(2), Note::Remove(1)]));
    }

    #[test]
    fn one_thread_at_a_time_owns_the_state_and_no_event_is_lost() {
        const THREADS: u32 = 4;
        const EVENTS: u32 = 2000;
        let (mailbox, owned) = (Mailbox::new(Owners::Anyone, 0, Status::default()), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for number in 0..EVENTS {
                        post(&mailbox, Note::Arrived(number), |count, events| {
                            assert!(!owned.swap(true, Ordering::Relaxed), "another thread owns it");
                            *count += events.news.len() as u32;
                            owned.store(false, Ordering::Relaxed);
                            Status::default()
                        });
                    }
                });
            }
        });
        assert_eq!(mailbox.close().as_deref(), Some(&(THREADS * EVENTS)));
    }

    #[test]
    fn the_end_waits_for_the_owner() {
        let mailbox = Mailbox::new(Owners::Anyone, 0, Status::default());
        thread::scope(|scope| {
            post(&mailbox, Note::Arrived(1), |count, _| {
                scope.spawn(|| assert_eq!(mailbox.close().as_deref(), Some(&7), "after the work"));
                while !mailbox.mail.lock().closed {
                    thread::yield_now();
                }
                *count = 7;
                Status::default()
            });
        });
    }

    #[test]
    fn a_status_is_as_new_as_its_request() {
        let mailbox = Mailbox::<u32, ()>::new(Owners::Anyone, 0, Status::default());
        let made = |entries| Status { load: TableLoad { entries, limit: 9 }, is_failing: false };
        let mut turns = 0;
        thread::scope(|scope| {
            post(&mailbox, Note::Arrived(1), |_, events| {
                turns += 1;
                assert_eq!(events.status, turns == 2);
                if turns == 1 {
                    scope.spawn(|| {
                        assert!(matches!(mailbox.post(Event::Status), Posted::Nothing));
                        assert_eq!(mailbox.status().load.entries, 2);
                    });
                    while !mailbox.mail.lock().events.status {
                        thread::yield_now();
                    }
                }
                made(turns)
            });
        });
        assert_eq!(turns, 2);
    }

    #[test]
    fn a_panic_gives_the_state_back() {
        let mailbox = Mailbox::new(Owners::Anyone, 0, Status::default());
        let panics = || post(&mailbox, Note::Arrived(1), |_, _| panic!("planned"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        post(&mailbox, Note::Arrived(2), |count, _| {
            *count = 3;
            Status::default()
        });
        assert_eq!(mailbox.close().as_deref(), Some(&3));
    }
}
