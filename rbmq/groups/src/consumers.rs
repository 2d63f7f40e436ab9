//! A group of named consumers: who has which entry, until somebody says that it is done.
//!
//! ```text
//!   log ──┬──────────────────────────────┬───────────────┬──▶
//!         │   ●     ●●    ●  ●           │ last          │ end
//!         │   └ pending: at a consumer   │ not delivered │
//! ```
//!
//! A [`Group`](crate::Group) hands messages out by itself, and takes them back when their time is over. Here consumers ask, by a name that outlives
//! their connections, and nothing comes back by itself: an entry stays with its consumer, with the time and the number of its deliveries, until it is
//! acknowledged or another consumer takes it. [`Consumers`] is a machine: it does no I/O and knows no clock. What happens is noted as operations,
//! which the journal takes as they are; the group as a whole is the operations that make it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::{CONSUMER_CHANGES, CONSUMERS, Fields, MAX_BATCH, MAX_PENDING, VERSION};

/// The largest memory that a pending entry costs, in bytes: its place in two trees, whose nodes are half full at least.
pub const CONSUMER_ENTRY_BYTES: usize = 144;

/// The longest name of a consumer, in bytes.
pub const MAX_CONSUMER_NAME_BYTES: usize = 255;

/// What a consumer costs beside its name, in bytes.
const CONSUMER_BYTES: usize = 256;

/// The bytes of the longest operation but for those with a name.
const LONGEST_OP: u64 = 33;

const _: () = assert!(2 * LONGEST_OP * (MAX_PENDING as u64) < MAX_BATCH as u64);
const _: () = assert!(CONSUMER_ENTRY_BYTES >= 2 * (size_of::<EntryId>() * 2 + size_of::<Delivered>()));

/// No number, where there may be one.
const UNKNOWN: u64 = u64::MAX;

const OP_CONSUMER: u8 = 1;
const OP_REMOVED: u8 = 2;
const OP_DELIVERED: u8 = 3;
const OP_DONE: u8 = 4;
const OP_LAST: u8 = 5;

/// The id of an entry, or a place between entries: when the entry was stored, and where its record begins in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since 1970.
    pub time: u64,
    /// The position.
    pub position: u64,
}

impl EntryId {
    /// Below all ids.
    pub const MIN: Self = Self { time: 0, position: 0 };
    /// Above all ids.
    pub const MAX: Self = Self { time: u64::MAX, position: u64::MAX };

    /// The id above this one. None above the largest.
    pub fn next(self) -> Option<Self> {
        match (self.time, self.position.checked_add(1)) {
            (time, Some(position)) => Some(Self { time, position }),
            (time, None) => Some(Self { time: time.checked_add(1)?, position: 0 }),
        }
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.time, self.position)
    }
}

/// A pending entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The number of the consumer that has it.
    pub consumer: u32,
    /// How often it was delivered.
    pub count: u32,
    /// When it was delivered last, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A consumer.
#[derive(Debug, Clone)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// The entries that are pending at the consumer.
    held: BTreeSet<EntryId>,
    /// When it has asked last, in milliseconds since 1970. Another process begins with its own start.
    pub seen_ms: u64,
    /// When it got something last. None: it got nothing in this process.
    pub active_ms: Option<u64>,
}

impl Consumer {
    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The number of its pending entries.
    pub fn pending(&self) -> usize {
        self.held.len()
    }
}

/// The group has as many consumers as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the group has {0} consumers with pending entries, and may have no more")]
pub struct TooManyConsumers(pub usize);

/// A group of named consumers. See the module.
///
/// ```
/// use rbmq_groups::{Consumers, EntryId};
/// let mut group = Consumers::new(EntryId::MIN, None);
/// let (anna, _) = group.consumer(b"anna", 1_000, 10)?;
/// let entry = EntryId { time: 900, position: 8 };
/// assert!(group.deliver(anna, EntryId::MIN, &[entry], 1_000, true));
/// assert_eq!((group.last(), group.pending()), (entry, 1));
/// assert!(group.ack(entry) && !group.ack(entry));
/// # Ok::<(), rbmq_groups::TooManyConsumers>(())
/// ```
#[derive(Debug, Clone)]
pub struct Consumers {
    last: EntryId,
    /// How many entries of the stream were delivered, if that is known.
    read: Option<u64>,
    /// Where the log is read on, if that is known: nothing between `last` and this is an entry.
    next: Option<u64>,
    consumers: BTreeMap<u32, Consumer>,
    by_name: BTreeMap<Arc<[u8]>, u32>,
    name_bytes: usize,
    pending: BTreeMap<EntryId, Delivered>,
    /// A batch of the journal with what has happened.
    changes: Vec<u8>,
    counts: ConsumerCounts,
}

/// What has happened since the machine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerCounts {
    /// Entries that consumers got, each time.
    pub delivered: u64,
    /// Entries that were acknowledged.
    pub acked: u64,
    /// New entries, and the bytes of the log that they took: so much an entry has on average.
    pub read: u64,
    /// See `read`.
    pub read_bytes: u64,
}

impl Consumers {
    /// A group that delivers what is above an id. `read`: how many entries are not, if that is known.
    pub fn new(last: EntryId, read: Option<u64>) -> Self {
        Self {
            last,
            read,
            next: None,
            consumers: BTreeMap::new(),
            by_name: BTreeMap::new(),
            name_bytes: 0,
            pending: BTreeMap::new(),
            changes: vec![VERSION, CONSUMER_CHANGES],
            counts: ConsumerCounts::default(),
        }
    }

    /// The id of the last entry that was delivered, or that the group was set to.
    pub fn last(&self) -> EntryId {
        self.last
    }

    /// How many entries of the stream were delivered, if that is known.
    pub fn read(&self) -> Option<u64> {
        self.read
    }

    /// The counts of what has happened.
    pub fn counts(&self) -> ConsumerCounts {
        self.counts
    }

    /// Where the log is read on, if that is known.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// Nothing between the last entry, which is still this one, and a position of the log is an entry.
    pub fn passed(&mut self, last: EntryId, next: u64) {
        if self.last == last {
            self.next = Some(next);
        }
    }

    /// The group delivers what is above an id, whatever it has delivered.
    pub fn set_last(&mut self, last: EntryId, read: Option<u64>) {
        (self.last, self.read, self.next) = (last, read, None);
        self.note_last();
    }

    /// The consumer of a name, which asks now. It is made if there is none; then the second value is true. A group that has so many consumers forgets the
    /// one that has nothing and has not asked for the longest time.
    ///
    /// # Errors
    /// The group has as many as it may have, and each of them has something.
    pub fn consumer(
        &mut self,
        name: &[u8],
        now_ms: u64,
        most: usize,
    ) -> Result<(u32, bool), TooManyConsumers> {
        if let Some(number) = self.find(name) {
            if let Some(consumer) = self.consumers.get_mut(&number) {
                consumer.seen_ms = now_ms;
            }
            return Ok((number, false));
        }
        if self.consumers.len() >= most {
            let idle = self.consumers.values().filter(|one| one.held.is_empty());
            let idle = idle.min_by_key(|one| one.seen_ms).map(|one| one.name.clone());
            self.remove_consumer(&idle.ok_or(TooManyConsumers(most))?);
        }
        let last = self.consumers.last_key_value().map_or(0, |(number, _)| *number);
        let number = match last.checked_add(1) {
            Some(number) => Some(number),
            // A group whose consumers came and went four thousand million times.
            None => (1..=u32::MAX).find(|number| !self.consumers.contains_key(number)),
        };
        let number = number.filter(|_| self.consumers.len() < most).ok_or(TooManyConsumers(most))?;
        self.insert(number, name, now_ms);
        put_consumer(&mut self.changes, number, name);
        Ok((number, true))
    }

    /// The number of the consumer of a name.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// A consumer.
    pub fn get(&self, number: u32) -> Option<&Consumer> {
        self.consumers.get(&number)
    }

    /// The consumers, by name.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.by_name.values().filter_map(|number| self.consumers.get(number))
    }

    /// The number of consumers.
    pub fn len(&self) -> usize {
        self.consumers.len()
    }

    /// Whether the group has no consumer.
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Removes a consumer, and forgets what it has. Returns how many entries that is; none: no such consumer.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.find(name)?;
        put(&mut self.changes, OP_REMOVED, &number.to_le_bytes());
        Some(self.remove(number))
    }

    /// New entries go to a consumer, and are pending if it is to acknowledge them. False: the last entry of the group is not `after` any more, and
    /// nothing has changed, since others have got these.
    pub fn deliver(
        &mut self,
        consumer: u32,
        after: EntryId,
        ids: &[EntryId],
        at_ms: u64,
        keep: bool,
    ) -> bool {
        if self.last != after {
            return false;
        }
        let Some(last) = ids.last() else { return true };
        self.counts.read += ids.len() as u64;
        self.counts.read_bytes += last.position.saturating_sub(self.last.position.max(ids[0].position));
        self.counts.delivered += if keep { 0 } else { ids.len() as u64 };
        for id in ids.iter().filter(|_| keep) {
            self.claim(*id, Delivered { consumer, count: 1, at_ms });
        }
        self.read = self.read.map(|read| read.saturating_add(ids.len() as u64));
        (self.last, self.next) = (*last, None);
        self.note_last();
        self.was_active(consumer, at_ms);
        true
    }

    /// The group is before the first entry that ever was: how many it has delivered is known from now on.
    pub fn has_read_nothing(&mut self) {
        self.read = self.read.or(Some(0));
    }

    /// A consumer has got something.
    pub fn was_active(&mut self, consumer: u32, at_ms: u64) {
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.active_ms = Some(at_ms);
        }
    }

    /// An entry is pending at a consumer of the group from now on, whoever had it.
    pub fn claim(&mut self, id: EntryId, delivered: Delivered) {
        if self.set(id, delivered) {
            self.counts.delivered += 1;
            put_delivered(&mut self.changes, id, delivered);
        }
    }

    /// An entry is done, or the log has it no more. False: it was not pending.
    pub fn ack(&mut self, id: EntryId) -> bool {
        let was_pending = self.done(id);
        if was_pending {
            self.counts.acked += 1;
            put_id(&mut self.changes, OP_DONE, id, &[]);
        }
        was_pending
    }

    /// The number of pending entries.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// A pending entry.
    pub fn delivered(&self, id: EntryId) -> Option<Delivered> {
        self.pending.get(&id).copied()
    }

    /// The pending entries from an id on, in order.
    pub fn pending_from(&self, id: EntryId) -> impl DoubleEndedIterator<Item = (EntryId, Delivered)> {
        self.pending.range(id..).map(|(id, delivered)| (*id, *delivered))
    }

    /// The pending entries of a consumer from an id on, in order.
    pub fn pending_of(&self, consumer: u32, id: EntryId) -> impl Iterator<Item = (EntryId, Delivered)> {
        let held = self.consumers.get(&consumer).map(|consumer| consumer.held.range(id..));
        held.into_iter().flatten().filter_map(|id| Some((*id, *self.pending.get(id)?)))
    }

    /// The most memory that the group uses, in bytes.
    pub fn cost(&self) -> usize {
        self.pending.len() * CONSUMER_ENTRY_BYTES + self.consumers.len() * CONSUMER_BYTES + self.name_bytes
    }

    /// A batch of the journal with what has happened since [`Consumers::written`]; none: nothing.
    pub fn changes(&self) -> Option<&[u8]> {
        (self.changes.len() > 2).then_some(&*self.changes)
    }

    /// The journal has what has happened.
    pub fn written(&mut self) {
        self.changes.truncate(2);
        self.changes.shrink_to(64 << 10);
    }

    /// The group as a whole, as a batch of the journal.
    pub(crate) fn save(&self, epoch: u128) -> Vec<u8> {
        let mut bytes = vec![VERSION, CONSUMERS];
        bytes.extend_from_slice(&epoch.to_le_bytes());
        put_id(&mut bytes, OP_LAST, self.last, &self.read.unwrap_or(UNKNOWN).to_le_bytes());
        for (number, consumer) in &self.consumers {
            put_consumer(&mut bytes, *number, &consumer.name);
        }
        for (id, delivered) in &self.pending {
            put_delivered(&mut bytes, *id, *delivered);
        }
        bytes
    }

    /// The group as the journal has it, in a process that began then. Where the journal lacks a part, the operations have an empty one: what was delivered
    /// in it is not known, so the group goes on before it, and whatever follows comes again.
    pub(crate) fn restore(operations: &[Vec<u8>], began_ms: u64) -> Self {
        let mut group = Self::new(EntryId::MIN, None);
        let mut lacks = false;
        for bytes in operations {
            let mut fields = Fields(bytes);
            lacks |= bytes.is_empty();
            let before = group.last;
            while let Some(operation) = Operation::take(&mut fields) {
                group.apply(operation, began_ms);
            }
            if lacks {
                (group.last, group.read) = (group.last.min(before), None);
            }
        }
        group
    }

    fn apply(&mut self, operation: Operation<'_>, now_ms: u64) {
        match operation {
            Operation::Consumer(number, name) => self.is_consumer(number, name, now_ms),
            Operation::Removed(number) => _ = self.remove(number),
            Operation::Delivered(id, delivered) => {
                if !self.set(id, delivered) {
                    // The name is in a lost part. The entry can be claimed.
                    let name = format!("lost-{}", delivered.consumer).into_bytes();
                    let consumer = self.find(&name).unwrap_or(delivered.consumer);
                    self.is_consumer(consumer, &name, now_ms);
                    self.set(id, Delivered { consumer, ..delivered });
                }
            }
            Operation::Done(id) => _ = self.done(id),
            Operation::Last(last, read) => (self.last, self.read) = (last, read),
        }
    }

    /// A number has a name. Others that have had one of both were removed, in a part of the journal that is lost.
    fn is_consumer(&mut self, number: u32, name: &[u8], now_ms: u64) {
        if self.find(name) == Some(number) {
            return;
        }
        self.remove(number);
        if let Some(before) = self.find(name) {
            self.remove(before);
        }
        self.insert(number, name, now_ms);
    }

    fn insert(&mut self, number: u32, name: &[u8], now_ms: u64) {
        let name: Arc<[u8]> = name.into();
        self.name_bytes += name.len();
        self.by_name.insert(name.clone(), number);
        let consumer = Consumer { name, held: BTreeSet::new(), seen_ms: now_ms, active_ms: None };
        self.consumers.insert(number, consumer);
    }

    fn remove(&mut self, number: u32) -> usize {
        let Some(consumer) = self.consumers.remove(&number) else { return 0 };
        self.by_name.remove(&consumer.name);
        self.name_bytes -= consumer.name.len();
        for id in &consumer.held {
            self.pending.remove(id);
        }
        consumer.held.len()
    }

    /// False: there is no such consumer.
    fn set(&mut self, id: EntryId, delivered: Delivered) -> bool {
        let Some(consumer) = self.consumers.get_mut(&delivered.consumer) else { return false };
        consumer.held.insert(id);
        let before = self.pending.insert(id, delivered);
        if let Some(before) = before.filter(|before| before.consumer != delivered.consumer)
            && let Some(consumer) = self.consumers.get_mut(&before.consumer)
        {
            consumer.held.remove(&id);
        }
        true
    }

    fn done(&mut self, id: EntryId) -> bool {
        let Some(Delivered { consumer, .. }) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.held.remove(&id);
        }
        true
    }

    fn note_last(&mut self) {
        let read = self.read.unwrap_or(UNKNOWN).to_le_bytes();
        put_id(&mut self.changes, OP_LAST, self.last, &read);
    }
}

/// Something that has happened, as the journal has it.
enum Operation<'a> {
    Consumer(u32, &'a [u8]),
    Removed(u32),
    Delivered(EntryId, Delivered),
    Done(EntryId),
    Last(EntryId, Option<u64>),
}

impl<'a> Operation<'a> {
    fn take(fields: &mut Fields<'a>) -> Option<Self> {
        let [kind] = fields.take()?;
        Some(match kind {
            OP_CONSUMER => {
                let number = u32::from_le_bytes(fields.take()?);
                let len = u16::from_le_bytes(fields.take()?);
                let (name, rest) = fields.0.split_at_checked(len.into())?;
                fields.0 = rest;
                Self::Consumer(number, name)
            }
            OP_REMOVED => Self::Removed(u32::from_le_bytes(fields.take()?)),
            OP_DELIVERED => {
                let id = take_id(fields)?;
                let [consumer, count] =
                    [u32::from_le_bytes(fields.take()?), u32::from_le_bytes(fields.take()?)];
                Self::Delivered(id, Delivered { consumer, count, at_ms: u64::from_le_bytes(fields.take()?) })
            }
            OP_DONE => Self::Done(take_id(fields)?),
            OP_LAST => {
                let (id, read) = (take_id(fields)?, u64::from_le_bytes(fields.take()?));
                Self::Last(id, (read != UNKNOWN).then_some(read))
            }
            _ => return None,
        })
    }
}

/// Whether bytes are operations and nothing else.
pub(crate) fn are_operations(bytes: &[u8]) -> bool {
    let mut fields = Fields(bytes);
    while !fields.0.is_empty() {
        if Operation::take(&mut fields).is_none() {
            return false;
        }
    }
    true
}

fn take_id(fields: &mut Fields<'_>) -> Option<EntryId> {
    Some(EntryId { time: u64::from_le_bytes(fields.take()?), position: u64::from_le_bytes(fields.take()?) })
}

fn put(bytes: &mut Vec<u8>, kind: u8, fields: &[u8]) {
    bytes.push(kind);
    bytes.extend_from_slice(fields);
}

fn put_id(bytes: &mut Vec<u8>, kind: u8, id: EntryId, fields: &[u8]) {
    put(bytes, kind, &id.time.to_le_bytes());
    bytes.extend_from_slice(&id.position.to_le_bytes());
    bytes.extend_from_slice(fields);
}

fn put_delivered(bytes: &mut Vec<u8>, id: EntryId, Delivered { consumer, count, at_ms }: Delivered) {
    put_id(bytes, OP_DELIVERED, id, &consumer.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&at_ms.to_le_bytes());
}

fn put_consumer(bytes: &mut Vec<u8>, number: u32, name: &[u8]) {
    let name = &name[..name.len().min(MAX_CONSUMER_NAME_BYTES)];
    put(bytes, OP_CONSUMER, &number.to_le_bytes());
    bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
    bytes.extend_from_slice(name);
}
