//! The rules for what clients may say after a round, whatever happened in it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use rbmq::ConfirmLevel;
use rocketbufs::{Epoch, Position};

use crate::publishers::Published;
use crate::readers::{Heard, Mark, Notes};

/// The most examples of one kind of fault.
const EXAMPLES: usize = 5;

/// The messages and answers that clients saw.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The messages of publishers, and the answers that they got.
    pub published: Vec<Published>,
    /// The messages that subscribers read while faults happened.
    pub live: Vec<Notes>,
    /// The messages that subscribers of each broker read afterwards, from the beginning on.
    pub last: Vec<Notes>,
    /// Whether a broker was killed: what only its memory had may be missing.
    pub had_death: bool,
    /// Whether a machine lost its power: what its disk had not synced may be missing, and that is told.
    pub had_cut: bool,
    /// The files that were damaged: what they had may be missing, and that is told.
    pub damage: Vec<PathBuf>,
    /// Whether a topic may have several logs.
    pub has_new_logs: bool,
    /// Whether logs go on in the archive: messages that are not there when their owner is gone may be missing, and readers hear of them.
    pub has_archive: bool,
    /// The brokers that have the groups in the end, if the round asks for them: a subscriber there reads the log, and one elsewhere the part that rings have.
    pub owners: BTreeMap<String, usize>,
    /// Readings of everything that did not come to the end.
    pub unfinished: Vec<String>,
}

/// The group of a topic.
pub(crate) fn group(topic: &str) -> &str {
    topic.rsplit_once('/').map_or(topic, |(group, _)| group)
}

/// Lost positions of logs, of which readers hear.
#[derive(Debug, Default)]
struct Voids(HashMap<Epoch, Vec<Range<Position>>>);

impl Voids {
    fn of(&self, epoch: Epoch) -> &[Range<Position>] {
        self.0.get(&epoch).map_or(&[], Vec::as_slice)
    }

    /// Whether the bytes that were heard have lost positions.
    fn has(&self, heard: &Heard) -> bool {
        self.of(heard.epoch).iter().any(|range| range.start < heard.to && heard.from < range.end)
    }
}

const OTHER: &str = "was read with other bytes";

/// Positions of one piece of an image.
const PIECE: u64 = 4_096;

/// The bytes of a log, as far as subscribers read them, in pieces. A round has few bytes, and the log of an archive has large holes between them.
#[derive(Debug, Default)]
struct Image(HashMap<u64, Vec<Option<u8>>>);

impl Image {
    fn add(&mut self, from: Position, bytes: &[u8]) {
        for (at, byte) in (from..).zip(bytes) {
            let piece = self.0.entry(at / PIECE).or_insert_with(|| vec![None; PIECE as usize]);
            piece[(at % PIECE) as usize].get_or_insert(*byte);
        }
    }

    fn get(&self, at: Position) -> Option<u8> {
        self.0.get(&(at / PIECE)).and_then(|piece| piece[(at % PIECE) as usize])
    }

    /// Whether the log has other bytes there, or none, which nobody is told of.
    fn differs(&self, from: Position, bytes: &[u8], told: &[Range<Position>]) -> Option<&'static str> {
        let is_told = |at: Position| told.iter().any(|range| range.contains(&at));
        let there = || (from..).zip(bytes).map(|(at, byte)| (at, self.get(at), *byte));
        let is_short = there().any(|(at, there, _)| there.is_none() && !is_told(at));
        let is_other = there().any(|(_, there, byte)| there.is_some_and(|there| there != byte));
        if is_other { Some(OTHER) } else { is_short.then_some("was read and is gone") }
    }
}

impl Evidence {
    /// Everything that is wrong. Empty: clients saw what they were promised.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut add = |mut found: Vec<String>| {
            found.truncate(EXAMPLES);
            faults.append(&mut found);
        };
        self.live.iter().chain(&self.last).for_each(|notes| add(holes(notes)));
        add(self.unfinished.iter().filter(|_| self.has_archive).cloned().collect());
        add(self.contents());
        // Without its journal, or a part of it, a broker does not know what it has of a publisher, which sends it again.
        let is_journal = |path: &PathBuf| path.iter().any(|part| part == "publishers");
        let may_repeat = self.damage.iter().any(is_journal);
        let voids = self.voids();
        for (n, notes) in self.last.iter().enumerate().filter(|_| !may_repeat) {
            // A ring may have messages of an owner before that its archive did not get: their publishers have sent them again.
            let is_void = |heard: &Heard| self.owner(&heard.topic) != Some(n) && voids.has(heard);
            add(orders(notes, is_void).into_iter().map(|wrong| format!("at broker {n}: {wrong}")).collect());
        }
        add(self.missing());
        add(self.unread());
        add(self.logs());
        let stuck = |one: &Published| {
            let why = one.stuck.as_ref()?;
            Some(format!("publisher {} of {} hangs: {why}", one.publisher, one.topic))
        };
        add(self.published.iter().filter_map(stuck).collect());
        faults
    }

    /// The messages that can be read afterwards.
    pub fn kept(&self) -> HashSet<Mark> {
        self.logs_heard().flat_map(|heard| heard.marks.iter().copied()).collect()
    }

    /// The broker that has a topic.
    pub(crate) fn owner(&self, topic: &str) -> Option<usize> {
        self.owners.get(group(topic)).copied()
    }

    /// The logs as their owners give them, or as all brokers do together where nobody knows the owner.
    fn logs_heard(&self) -> impl Iterator<Item = &Heard> {
        let all = self
            .last
            .iter()
            .enumerate()
            .flat_map(|(n, notes)| notes.heard.iter().map(move |heard| (n, heard)));
        all.filter(|(n, heard)| self.owner(&heard.topic).is_none_or(|owner| owner == *n))
            .map(|(_, heard)| heard)
    }

    /// The lost positions of which readers of the logs hear, and the positions below the first ones.
    fn voids(&self) -> Voids {
        let mut voids = Voids::default();
        for heard in self.logs_heard() {
            let below = || self.owner(&heard.topic).map(|_| 0..heard.from).into_iter().collect();
            let told = voids.0.entry(heard.epoch).or_insert_with(below);
            if heard.bytes.is_none() {
                told.push(heard.from..heard.to);
            }
        }
        voids
    }

    /// The topics with losses of which everybody is told who reads them.
    fn told(&self) -> HashSet<&str> {
        let losses = self.last.iter().flat_map(|notes| &notes.heard).filter(|heard| heard.bytes.is_none());
        losses.map(|heard| heard.topic.as_str()).collect()
    }

    /// The messages that must be readable afterwards, and are not.
    pub fn missing(&self) -> Vec<String> {
        let (kept, told) = (self.kept(), self.told());
        let mut missing = Vec::new();
        for one in &self.published {
            let confirmed = match one.level.is_of_disk() {
                true => one.confirmed.iter().map(|confirmed| confirmed.end).max().unwrap_or(0),
                false => 0,
            };
            // Messages that the archive does not have go with their owner: publishers hear of them, or send them again.
            let is_left = self.has_archive && one.level != ConfirmLevel::Archived;
            let may_lack = one.is_dead || (self.had_death || self.has_archive) && !one.lost.is_empty();
            let all = match () {
                () if is_left => one.archived_end,
                () if may_lack => confirmed,
                () => one.times.len(),
            };
            let forgets = self.had_cut && one.level != ConfirmLevel::Synced && !self.has_archive;
            if told.contains(one.topic.as_str()) && (forgets || !self.damage.is_empty()) {
                continue;
            }
            let is_lost = |number: &usize| one.lost.iter().any(|range| range.contains(number));
            let gone = (0..all).filter(|number| !is_lost(number));
            let gone =
                gone.filter(|number| !kept.contains(&Mark { publisher: one.publisher, number: *number }));
            missing.extend(summary(gone.collect()).map(|gone| {
                format!(
                    "publisher {} of {} ({}, confirmed before {confirmed} of {}) misses {gone}",
                    one.publisher,
                    one.topic,
                    one.level,
                    one.times.len()
                )
            }));
        }
        missing
    }

    /// Messages that were delivered or consumed, as publishers were told, and that nobody has read.
    fn unread(&self) -> Vec<String> {
        let read: HashSet<Mark> = self.live.iter().flat_map(Notes::marks).collect();
        let mut unread = Vec::new();
        for one in &self.published {
            if !matches!(one.level, ConfirmLevel::Delivered | ConfirmLevel::Consumed) {
                continue;
            }
            let mut certain = BTreeSet::new();
            let mut before = 0;
            for confirmed in &one.confirmed {
                if confirmed.is_certain {
                    certain.extend(before..confirmed.end);
                }
                before = before.max(confirmed.end);
            }
            let is_unread = |number: &usize| {
                !read.contains(&Mark { publisher: one.publisher, number: *number })
                    && !one.lost.iter().any(|range| range.contains(number))
            };
            let numbers = certain.into_iter().filter(is_unread).collect();
            unread.extend(summary(numbers).map(|numbers| {
                format!(
                    "publisher {} was told that {numbers} are {}: nobody has read them",
                    one.publisher, one.level
                )
            }));
        }
        unread
    }

    /// Places of a log with two contents, and places that were read and are gone.
    fn contents(&self) -> Vec<String> {
        let mut images: HashMap<Epoch, Image> = HashMap::new();
        for heard in self.logs_heard() {
            if let Some(bytes) = &heard.bytes {
                images.entry(heard.epoch).or_default().add(heard.from, bytes);
            }
        }
        let is_told = self.had_cut || self.has_archive || !self.damage.is_empty();
        let voids = if is_told { self.voids() } else { Voids::default() };
        let none = Image::default();
        let all = self.live.iter().chain(&self.last).flat_map(|notes| &notes.heard);
        let differs = |heard: &Heard| {
            let bytes = heard.bytes.as_ref()?;
            let told = voids.of(heard.epoch);
            let how = images.get(&heard.epoch).unwrap_or(&none).differs(heard.from, bytes, told)?;
            // A reading that did not come to its end is reported, and shows no loss.
            let is_shown = how == OTHER || !self.has_archive || self.unfinished.is_empty();
            is_shown
                .then(|| format!("{}: {} to {} of {} {how}", heard.topic, heard.from, heard.to, heard.epoch))
        };
        all.filter_map(differs).collect()
    }

    /// Topics that wait for their owners have one log.
    fn logs(&self) -> Vec<String> {
        let mut logs: BTreeMap<&str, BTreeSet<Epoch>> = BTreeMap::new();
        for heard in self.live.iter().chain(&self.last).flat_map(|notes| &notes.heard) {
            logs.entry(&heard.topic).or_default().insert(heard.epoch);
        }
        let several = logs.iter().filter(|(_, epochs)| epochs.len() > 1 && !self.has_new_logs);
        several
            .map(|(topic, epochs)| format!("{topic} has {} logs, and waits for its owner", epochs.len()))
            .collect()
    }
}

/// The messages that a subscriber did not get and was not told of, and those that it got twice.
fn holes(notes: &Notes) -> Vec<String> {
    let mut ends: HashMap<Epoch, Position> = HashMap::new();
    let mut holes = Vec::new();
    for Heard { topic, epoch, from, to, bytes, .. } in &notes.heard {
        let end = ends.insert(*epoch, *to);
        if let Some(end) = end.filter(|end| end != from) {
            let what = if end < *from { "is missing without a word" } else { "came twice" };
            let loss = if bytes.is_none() { "a loss" } else { "bytes" };
            holes.push(format!("{topic}: {end} to {from} of {epoch} {what}, before {loss}"));
        }
    }
    holes
}

/// Messages of a publisher that are in a log twice, or in another order than they were published in. Void messages do not count.
fn orders(notes: &Notes, is_void: impl Fn(&Heard) -> bool) -> Vec<String> {
    let mut last: HashMap<(Epoch, usize), usize> = HashMap::new();
    let mut wrong = Vec::new();
    for heard in notes.heard.iter().filter(|heard| !is_void(heard)) {
        for Mark { publisher, number } in heard.marks.iter().copied() {
            let before = last.insert((heard.epoch, publisher), number);
            if let Some(before) = before.filter(|before| *before >= number) {
                let topic = &heard.topic;
                wrong.push(format!(
                    "{topic}: publisher {publisher} has {number} after {before} in {}",
                    heard.epoch
                ));
            }
        }
    }
    wrong
}

/// Numbers for people; none if there are none.
fn summary(numbers: Vec<usize>) -> Option<String> {
    let (first, last) = (numbers.first()?, numbers.last()?);
    Some(format!("{} messages from {first} to {last}", numbers.len()))
}

#[cfg(test)]
mod tests;
