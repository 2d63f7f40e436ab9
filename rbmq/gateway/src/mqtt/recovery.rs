//! What an earlier gateway left in the journal.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rbmq_wire::{TopicFilter, TopicName};
use tracing::{info, warn};

use crate::protocol::Cx;

use super::codec::SubscribeOptions;
use super::due_will::is_without_session;
use super::journal::entry::{Change, Entry, Life, Parcel};
use super::journal::{Batch, Journal, JournalError, Replay};
use super::message::Stored;
use super::retained::{Retained, RetainedMessages};
use super::session::{Held, Pending, Session, Subscription};
use super::settings::{Clock, Settings};
use super::shares::Target;
use super::state::{Alarm, Mqtt, Subscriber};
use super::will::OwnedWill;

/// What a message takes in memory beside its contents, about.
const ENTRY: usize = 100;

/// After so many bytes of messages, those are searched that nobody has any more. Tests do it often.
const FORGET_AT: usize = if cfg!(test) { 1 << 10 } else { 64 << 20 };

/// The tables of the earlier gateway.
#[derive(Debug)]
struct Tables {
    held: Arc<AtomicUsize>,
    sessions: BTreeMap<u64, Found>,
    retained: RetainedMessages,
    messages: HashMap<u64, Arc<Stored>>,
    /// The bytes of messages since those were forgotten that nobody has.
    new_bytes: usize,
    /// After how many that is.
    forget_at: usize,
    /// Entries about something that is not there.
    missing: usize,
}

#[derive(Debug)]
struct Found {
    session: Session,
    life: Life,
}

/// A snapshot that is not complete yet.
#[derive(Debug)]
struct Snapshot {
    tables: Tables,
    pieces: u32,
    /// Its first piece is there: complete, it has everything.
    has_first: bool,
    is_complete: bool,
    /// Changes are between its pieces, for what was before it as well.
    is_joined: bool,
    /// The present batch is of such changes.
    has_changes: bool,
    /// The session to which entries of its pieces belong.
    session: Option<u64>,
}

#[derive(Debug)]
struct Recovery {
    tables: Tables,
    /// Whether they begin with a snapshot. Without one, a part of a later snapshot has more.
    has_base: bool,
    snapshot: Option<Snapshot>,
    /// Something was read.
    has_begun: bool,
    is_damaged: bool,
}

impl Mqtt {
    /// A machine with the sessions and retained messages of a journal.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(crate) fn with_journal(
        settings: Settings,
        clock: Clock,
        gateway: u64,
        journal: Journal,
    ) -> Result<Self, JournalError> {
        let mut mqtt = Self::new(settings, clock, gateway);
        let tables = Tables::new(&mqtt.held);
        let mut recovery =
            Recovery { tables, has_base: false, snapshot: None, has_begun: false, is_damaged: false };
        journal.replay(&mut recovery)?;
        recovery.end_snapshot(false);
        let Recovery { tables, is_damaged, .. } = recovery;
        let dir = journal.dir().display();
        if is_damaged || tables.missing > 0 {
            warn!(
                "{dir}: parts of the journal are damaged, and {} entries name what is not there; sessions may miss messages or get \
                 them twice, and retained messages may be old",
                tables.missing
            );
        }
        mqtt.retained = tables.retained;
        mqtt.retained.keep(journal.notes());
        let found = tables.sessions.len();
        let mut living: Vec<(Option<Instant>, Session)> =
            tables.sessions.into_values().filter_map(|found| mqtt.living(found)).collect();
        // In the order in which they lost their connections, about: those that live on without end come last.
        living.sort_by_key(|(ends_at, _)| (ends_at.is_none(), *ends_at));
        let is_over = |ends_at: &Option<Instant>| ends_at.is_some_and(|at| at <= clock.at);
        let over = living.iter().filter(|(ends_at, _)| is_over(ends_at)).count();
        let expired = found - living.len() + over;
        info!(
            "{dir}: {} sessions and {} retained messages; {expired} sessions have expired",
            living.len() - over,
            mqtt.retained.len()
        );
        mqtt.journal = Some(journal);
        living.into_iter().for_each(|(ends_at, session)| mqtt.adopt(session, ends_at));
        Ok(mqtt)
    }

    /// A session that goes on, and when it ends. One that has ended and has a will does so at once, for the will. None: it has ended.
    fn living(&self, Found { mut session, life }: Found) -> Option<(Option<Instant>, Session)> {
        let begun = self.clock.at;
        if let Some(will) = session.will() {
            let at = match life.will_at {
                Some(at) if !life.connected => {
                    let left = Duration::from_millis(at.saturating_sub(self.clock.unix_ms));
                    // The clock of the machine may be wrong, and was right before.
                    begun.checked_add(left.min(will.delay))
                }
                // Its connection was lost when the gateway died.
                _ => begun.checked_add(will.delay),
            };
            session.will_at = at;
        }
        let ends_at = self.end_of(&life).or_else(|| session.will().map(|_| Some(begun)))?;
        Some((ends_at, session))
    }

    /// When a session ends: at no time, or then; none: it has ended.
    fn end_of(&self, life: &Life) -> Option<Option<Instant>> {
        let begun = self.clock.at;
        let after = |ms: u64| {
            let time = Duration::from_millis(ms).min(self.settings.max_session_expiry);
            begun.checked_add(time)
        };
        match life {
            // Its connection was lost when the gateway died, and nobody knows when that was.
            Life { connected: true, expiry_ms, .. } => Some(expiry_ms.and_then(after)),
            Life { ends_at: None, .. } => Some(None),
            Life { ends_at: Some(at), .. } => {
                let left = at.checked_sub(self.clock.unix_ms).filter(|left| *left > 0)?;
                Some(after(left))
            }
        }
    }

    fn adopt(&mut self, mut session: Session, ends_at: Option<Instant>) {
        session.ends_at = ends_at;
        self.departures += 1;
        session.away = Some(self.departures);
        self.serials = self.serials.max(session.serial);
        let (key, serial) = (session.key.clone(), session.serial);
        let slot = self.sessions.insert(session);
        self.away.insert(self.departures, slot);
        for at in [ends_at, self.sessions[slot].will_at].into_iter().flatten() {
            self.alarms.insert((at, Alarm::Session { slot, serial }));
        }
        if !is_without_session(&key) {
            self.names.insert(key, slot);
        }
        self.keep_session(slot);
    }

    /// Subscribes to what the sessions of the journal have subscribed to.
    pub(super) fn join_routes(&mut self, cx: &mut Cx<'_>) {
        let all: Vec<(usize, TopicFilter, Subscription)> = self
            .sessions
            .iter()
            .flat_map(|(slot, session)| {
                session
                    .subscriptions()
                    .map(move |(filter, subscription)| (slot, filter.clone(), *subscription))
            })
            .collect();
        for (slot, filter, Subscription { options, id }) in all {
            if let Some(target) = Target::of(filter.as_str()) {
                let since = self.retained_so_far;
                self.join_route(Subscriber { slot, options, id, since }, &target, cx);
            }
        }
    }
}

impl Tables {
    fn new(held: &Arc<AtomicUsize>) -> Self {
        let (sessions, retained) = (BTreeMap::new(), RetainedMessages::default());
        Self {
            held: Arc::clone(held),
            sessions,
            retained,
            messages: HashMap::new(),
            new_bytes: 0,
            forget_at: FORGET_AT,
            missing: 0,
        }
    }

    /// Forgets messages that nobody has any more, between batches: no batch names them again.
    fn forget_messages(&mut self) {
        if self.new_bytes > self.forget_at {
            self.messages.retain(|_, message| Arc::strong_count(message) > 1);
            let left: usize = self.messages.values().map(|message| ENTRY + message.bytes()).sum();
            (self.new_bytes, self.forget_at) = (0, FORGET_AT.max(left));
        }
    }

    fn apply_or_miss(&mut self, entry: Entry<'_>) {
        self.missing += usize::from(self.apply(entry).is_none());
    }

    /// Applies an entry. None: it names what is not there.
    fn apply(&mut self, entry: Entry<'_>) -> Option<()> {
        match entry {
            Entry::Message { number, topic, attributes, payload } => {
                let stored = Stored::new(topic.parse().ok()?, attributes, payload);
                self.new_bytes += ENTRY + stored.bytes();
                self.messages.insert(number, Arc::new(stored));
            }
            Entry::Retained { message, qos } => {
                let message = Arc::clone(self.messages.get(&message)?);
                self.retained.put(Retained { message, qos });
            }
            Entry::Forgotten { topic } => self.retained.remove(&topic.parse::<TopicName>().ok()?),
            Entry::Of { serial, change: Change::Lives { key, life, last_id } } => {
                let new = || Session::new(serial, key.into(), Held::of(&self.held));
                let found = self.sessions.entry(serial).or_insert_with(|| Found { session: new(), life });
                found.life = life;
                found.session.expiry = life.expiry_ms.map(Duration::from_millis);
                found.session.restore_last_id(last_id);
            }
            Entry::Of { serial, change: Change::WillAt { at } } => {
                self.sessions.get_mut(&serial)?.life.will_at = Some(at);
            }
            Entry::Of { serial, change: Change::Ended } => drop(self.sessions.remove(&serial)?),
            Entry::Of { serial, change } => {
                let session = &mut self.sessions.get_mut(&serial)?.session;
                return change_session(session, change, &self.messages);
            }
        }
        Some(())
    }
}

/// Applies a change of a session. None: it names what is not there.
fn change_session(
    session: &mut Session,
    change: Change<'_>,
    messages: &HashMap<u64, Arc<Stored>>,
) -> Option<()> {
    match change {
        Change::Lives { .. } | Change::Ended | Change::WillAt { .. } => {}
        Change::Will(will) => _ = session.set_will(Some(OwnedWill::restore(will)?)),
        Change::NoWill => _ = session.set_will(None),
        Change::Subscribed { filter, options, id } => {
            let (options, id) = (SubscribeOptions::from_bits(options), (id > 0).then_some(id));
            session.subscribe(filter.parse().ok()?, Subscription { options, id });
        }
        Change::Unsubscribed { filter } => _ = session.unsubscribe(&filter.parse().ok()?),
        Change::Queued(parcel) => match messages.get(&parcel.message) {
            Some(message) if parcel.replaceable => {
                session.push_retained(message, parcel.qos, parcel.ids.to_box());
            }
            Some(message) => session.push(pending(message, parcel)),
            None => {
                // Its place in the queue stays.
                session.push_gone(parcel.qos);
                return (parcel.message == 0).then_some(());
            }
        },
        Change::Popped => session.restore_popped(),
        Change::Sent { packet_id, parcel } => {
            let message = messages.get(&parcel.message)?;
            session.restore_sent(packet_id, Some(pending(message, parcel)));
        }
        Change::Recorded { packet_id } => match session.find(packet_id).is_some() {
            true => session.record(packet_id),
            false => session.restore_sent(packet_id, None),
        },
        Change::Finished { packet_id } => session.finish(packet_id),
        Change::Received { packet_id } => session.receive(packet_id, None),
        Change::Released { packet_id } => _ = session.release(packet_id),
    }
    Some(())
}

fn pending(message: &Arc<Stored>, parcel: Parcel<'_>) -> Pending {
    let Parcel { qos, retain, for_new, ids, .. } = parcel;
    Pending { message: Arc::clone(message), qos, retain, for_new, ids: ids.to_box() }
}

impl Recovery {
    /// Whether a snapshot in steps is not complete.
    fn is_joined(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_joined && !snapshot.is_complete)
    }

    fn set_changes(&mut self, has_changes: bool) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.has_changes = has_changes;
            // The next piece has another session.
            snapshot.session = snapshot.session.filter(|_| !has_changes);
        }
    }

    /// A snapshot has ended: complete, it takes the place of what was before it. Otherwise it was not written to its end, or given up, and does not
    /// count; or `its_end_is_lost`, and what follows names its messages.
    fn end_snapshot(&mut self, its_end_is_lost: bool) {
        let Some(Snapshot { tables, has_first, is_complete, .. }) = self.snapshot.take() else { return };
        self.is_damaged |= its_end_is_lost;
        if is_complete || !self.has_base {
            // Without one before it, a part is better than nothing.
            self.has_base = has_first;
            self.tables = tables;
        } else if its_end_is_lost {
            self.tables.messages.extend(tables.messages);
        }
    }
}

impl Replay for Recovery {
    fn on_batch(&mut self, batch: Batch) {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        match batch {
            Batch::Changes { is_joined: true, .. } if self.is_joined() => self.set_changes(true),
            Batch::Changes { gave_up, .. } => {
                let is_complete = self.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_complete);
                self.end_snapshot(!gave_up && !is_complete && self.snapshot.is_some());
            }
            Batch::Piece { number, is_first, is_last, is_joined } => {
                let is_another = |snapshot: &Snapshot| snapshot.is_complete || number < snapshot.pieces;
                if is_first || self.snapshot.as_ref().is_some_and(is_another) {
                    self.end_snapshot(false);
                }
                let held = &self.tables.held;
                let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
                    tables: Tables::new(held),
                    // What was before it was removed, and a part of it.
                    pieces: if has_begun { 0 } else { number },
                    has_first: is_first,
                    is_complete: false,
                    is_joined,
                    has_changes: false,
                    session: None,
                });
                self.is_damaged |= snapshot.pieces != number;
                snapshot.pieces = number.wrapping_add(1);
                snapshot.is_complete = is_last;
                self.set_changes(false);
            }
        }
        // Within a snapshot in steps, a message that nobody has here may be that of a session which follows.
        match &mut self.snapshot {
            None => self.tables.forget_messages(),
            Some(snapshot) if !snapshot.is_joined => snapshot.tables.forget_messages(),
            Some(_) => {}
        }
    }

    fn on_entry(&mut self, entry: Entry<'_>) {
        let Some(snapshot) = &mut self.snapshot else { return self.tables.apply_or_miss(entry) };
        match entry {
            Entry::Message { number, .. } if snapshot.is_joined => {
                if !self.tables.messages.contains_key(&number) {
                    self.tables.apply_or_miss(entry);
                }
                // One message in both: a retained one that waits for a session goes with its topic.
                let message = self.tables.messages.get(&number);
                snapshot.tables.messages.extend(message.map(|message| (number, Arc::clone(message))));
            }
            _ if snapshot.has_changes => {
                self.tables.apply_or_miss(entry);
                // What is not there yet follows with all that it has.
                _ = snapshot.tables.apply(entry);
            }
            Entry::Of { serial, change: Change::Lives { .. } }
                if snapshot.is_joined && snapshot.session != Some(serial) =>
            {
                snapshot.session = Some(serial);
                // Changes may have begun it.
                drop(snapshot.tables.sessions.remove(&serial));
                snapshot.tables.apply_or_miss(entry);
            }
            _ => snapshot.tables.apply_or_miss(entry),
        }
    }

    fn on_damage(&mut self) {
        (self.is_damaged, self.has_begun) = (true, true);
    }
}
