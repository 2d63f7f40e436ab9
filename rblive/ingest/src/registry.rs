//! The streams that exist, and their publishers.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use locks::{Mutex, MutexGuard};
use peers::{LogLimiter, Place};
use rblive::RsManager;
use rblive::config::matches;
use rblive::content::{Container, check_name};
use rblive_media::timeline::Timeline;

use crate::access::{Access, Claim, Refusal};
use crate::counters::IngestCounters;
use crate::encoder::Encoder;
use crate::ladder::RenditionRef;
use crate::output::Output;
use crate::settings::IngestSettings;
use crate::stream::{RENDITION, Stream, StreamFailure};
use crate::timelines::{first_sequence, first_timeline};

/// A name that has a publisher, or had one within `linger_ms`.
struct Entry {
    stream: Stream,
    /// The stream of which this is a rendition. `None`: it is a stream of its own.
    group: Option<String>,
    /// The number of the publisher that may write, and in `last` that of the newest publisher, since when it publishes.
    publisher: Option<u64>,
    last: u64,
    since: SystemTime,
    /// Whether an operator has ended the newest publisher.
    is_ended: bool,
    /// The proof of the newest publisher.
    claim: Claim,
    /// When the publisher has last written.
    heard: Instant,
}

/// How long a publisher is silent before its own client takes its place: an encoder whose network broke comes back on a new connection,
/// while the old one seems to be open.
const SILENCE: Duration = Duration::from_secs(2);
/// How long an encoder that an operator has ended may not publish the stream: encoders connect again by themselves.
const ENDED_FOR: Duration = Duration::from_secs(60);
/// The most encoders that are remembered after an operator has ended them.
const MAX_ENDED: usize = 1024;

/// Why a publisher may not write any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Gone {
    #[error("another publisher has taken the stream")]
    Replaced,
    #[error("an operator has ended this encoder")]
    Ended,
}

pub(crate) struct Registry {
    manager: RsManager,
    pub(crate) settings: IngestSettings,
    pub(crate) counters: Arc<IngestCounters>,
    pub(crate) access: Access,
    /// Limit the lines about failures of strangers, and of connections that have published.
    lines: Mutex<[LogLimiter; 2]>,
    tables: Mutex<Tables>,
}

/// The names that are published. An entry is locked before an output.
#[derive(Default)]
struct Tables {
    entries: HashMap<String, Arc<Mutex<Entry>>>,
    /// The streams with several renditions, by their names for viewers.
    groups: HashMap<String, Group>,
    /// The renditions that encoders' multivariant playlists have named, by the names that publish them. Their streams are in `groups`.
    declared: HashMap<String, RenditionRef>,
    /// The number of the newest publisher.
    publishers: u64,
    /// The encoders that an operator has ended, with their streams, the newest last.
    ended: VecDeque<(String, Claim, Instant)>,
}

/// A stream with several renditions.
struct Group {
    output: Arc<Mutex<Output>>,
    /// How many entries belong to it.
    members: usize,
}

/// A publisher of a stream.
pub(crate) struct Publisher {
    registry: Arc<Registry>,
    entry: Arc<Mutex<Entry>>,
    /// The name under which the stream is published.
    pub(crate) name: String,
    number: u64,
    claim: Claim,
}

impl Registry {
    pub(crate) fn new(manager: RsManager, settings: IngestSettings, access: Access) -> Arc<Self> {
        let (counters, lines, tables) = (Arc::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { manager, settings, counters, access, lines, tables })
    }

    /// Counts a connection or a request that failed. `log` writes a line with the number of those that had none since the last line.
    pub(crate) fn failed(&self, place: &Place, log: impl FnOnce(u64)) {
        IngestCounters::count(&self.counters.failed, 1);
        self.line(place, log);
    }

    /// Writes a line about a connection, unless there was one like it in the last ten seconds.
    pub(crate) fn line(&self, place: &Place, log: impl FnOnce(u64)) {
        let more = self.lines.lock()[usize::from(place.is_known())].allow(Instant::now());
        if let Some(more) = more {
            log(more);
        }
    }

    /// Tells which publishers send nothing that viewers get.
    pub(crate) fn look(&self) {
        for (_, entry) in self.entries() {
            let mut held = entry.lock();
            if held.publisher.is_some() {
                held.stream.look(Duration::from_millis(self.settings.limits.idle_ms));
            }
        }
    }

    /// The publishers.
    pub(crate) fn encoders(&self) -> Vec<Encoder> {
        let mut all: Vec<_> =
            self.entries().into_iter().filter_map(|(name, entry)| entry.lock().encoder(name)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn entries(&self) -> Vec<(String, Arc<Mutex<Entry>>)> {
        let tables = self.tables.lock();
        tables.entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// Ends a publisher, which may not publish the stream again for [`ENDED_FOR`]. Returns its stream; `None`: no publisher has this number.
    pub(crate) fn end_encoder(self: &Arc<Self>, number: u64) -> Option<String> {
        let of = |(_, entry): &(String, Arc<Mutex<Entry>>)| entry.lock().publisher == Some(number);
        let (name, entry) = self.entries().into_iter().find(of)?;
        let mut tables = self.tables.lock();
        let mut held = entry.lock();
        if held.publisher != Some(number) {
            return None;
        }
        tables.ended.push_back((name.clone(), held.claim.clone(), Instant::now()));
        if tables.ended.len() > MAX_ENDED {
            tables.ended.pop_front();
        }
        drop(tables);
        held.is_ended = true;
        self.leave(&name, held);
        Some(name)
    }

    /// A publisher is gone. Its stream waits `linger_ms` for another one, and then ends.
    fn leave(self: &Arc<Self>, name: &str, mut held: MutexGuard<'_, Entry>) {
        held.publisher = None;
        interrupt(&mut held.stream, name);
        let number = held.last;
        drop(held);
        let linger = Duration::from_millis(self.settings.linger_ms);
        let (registry, name) = (self.clone(), name.to_owned());
        // Without a runtime the servers are stopping, and the manager ends the stream.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(linger).await;
                registry.end(&name, number);
            });
        }
    }

    /// Admits a publisher, or returns why it is refused.
    pub(crate) async fn publish(self: &Arc<Self>, name: &str, claim: &Claim) -> Result<Publisher, Refusal> {
        let publisher = self.ask(name, claim, self.settings.takeover).await?;
        IngestCounters::count(&self.counters.publishers, 1);
        Ok(publisher)
    }

    /// Counts a refused client that wanted to write to a stream.
    pub(crate) fn count_refusal(&self) {
        IngestCounters::count(&self.counters.refused, 1);
    }

    /// Publishes again after a takeover, only if the stream has no publisher.
    pub(crate) async fn publish_again(
        self: &Arc<Self>,
        name: &str,
        claim: &Claim,
    ) -> Result<Publisher, Refusal> {
        self.ask(name, claim, false).await
    }

    async fn ask(self: &Arc<Self>, name: &str, claim: &Claim, takeover: bool) -> Result<Publisher, Refusal> {
        if !check_name(name) {
            return Err(Refusal::Name);
        }
        let claim = &Claim { is_user: self.access.check(name, claim).await?, ..claim.clone() };
        let name = self.access.ask(name, claim).await?;
        self.begin(&name, claim, takeover)
    }

    fn begin(self: &Arc<Self>, name: &str, claim: &Claim, takeover: bool) -> Result<Publisher, Refusal> {
        let mut tables = self.tables.lock();
        tables.ended.retain(|(.., at)| at.elapsed() < ENDED_FOR);
        if tables.ended.iter().any(|(stream, own, _)| stream == name && own.is_akin(claim)) {
            return Err(Refusal::Ended);
        }
        tables.publishers += 1;
        let number = tables.publishers;
        let entry = match tables.entries.get(name) {
            Some(entry) => entry.clone(),
            None => self.add(&mut tables, name, claim)?,
        };
        let mut held = entry.lock();
        if held.publisher.is_some() {
            if !takeover && !held.is_left_by(claim) {
                return Err(Refusal::Busy);
            }
            tracing::info!(stream = name, "another publisher takes the place of the one before");
            interrupt(&mut held.stream, name);
        }
        self.counters.remarks.forget(name);
        (held.publisher, held.last, held.since, held.is_ended) =
            (Some(number), number, SystemTime::now(), false);
        held.claim = claim.clone();
        held.heard = Instant::now();
        held.stream.begin();
        drop(held);
        Ok(Publisher { registry: self.clone(), entry, name: name.to_owned(), number, claim: claim.clone() })
    }

    /// Adds a stream, or a rendition of one.
    fn add(&self, tables: &mut Tables, name: &str, claim: &Claim) -> Result<Arc<Mutex<Entry>>, Refusal> {
        let is_taken = self.settings.ladders.iter().any(|rule| rule.names(name));
        if is_taken || tables.groups.contains_key(name) {
            return Err(Refusal::Ladder(name.to_owned()));
        }
        let by_rule = || self.settings.ladders.iter().find_map(|rule| rule.rendition(name));
        let place = tables.declared.get(name).cloned().or_else(by_rule);
        let (output, rendition, group) = match place {
            None => (self.output(name, 1, Timeline::alone)?, RENDITION, None),
            Some(place) => {
                let group = self.group(tables, &place)?;
                group.members += 1;
                (group.output.clone(), place.rendition, Some(place.name))
            }
        };
        let stream = Stream::new(name, output, rendition, &self.settings, &self.counters);
        let entry = Entry {
            stream,
            group,
            publisher: None,
            last: 0,
            since: SystemTime::now(),
            is_ended: false,
            claim: claim.clone(),
            heard: Instant::now(),
        };
        let entry = Arc::new(Mutex::new(entry));
        tables.entries.insert(name.to_owned(), entry.clone());
        Ok(entry)
    }

    fn output(
        &self,
        name: &str,
        renditions: usize,
        timeline: impl FnOnce(u64, u64) -> Timeline,
    ) -> Result<Arc<Mutex<Output>>, Refusal> {
        let id = self.manager.create_stream_of(name, renditions)?;
        let is_ruled = self.manager.config().rules.iter().any(|rule| matches(&rule.streams, name));
        let has_none =
            self.manager.outbound().iter().any(|stream| stream.id == id && stream.nodes.is_empty());
        if has_none && is_ruled && !self.manager.config().finds_nodes {
            tracing::warn!(
                stream = name,
                "no node of [[rules]] gets this stream: a pattern of nodes does not stand for this one, and a node needs an address"
            );
        } else if has_none && is_ruled {
            tracing::info!(
                stream = name,
                "no node of [[rules]] is known yet; one that comes gets the stream"
            );
        } else if has_none {
            tracing::warn!(
                stream = name,
                "no node gets this stream, since none of [[rules]] has its name: a pattern has no 'live/', which is not a part of the name"
            );
        }
        let is_passthrough = self.settings.passthrough.iter().any(|pattern| matches(pattern, name));
        let container = if is_passthrough { Container::Ts } else { Container::Cmaf };
        let segment_ms = self.settings.segment_ms;
        let timeline = timeline(first_sequence(segment_ms), first_timeline());
        let output = Output::new(self.manager.clone(), id, name, container, timeline, segment_ms);
        Ok(Arc::new(Mutex::new(output)))
    }

    /// The stream to which a rendition belongs.
    fn group<'a>(&self, tables: &'a mut Tables, place: &RenditionRef) -> Result<&'a mut Group, Refusal> {
        if tables.entries.contains_key(&place.name) {
            return Err(Refusal::Ladder(place.name.clone()));
        }
        match tables.groups.entry(place.name.clone()) {
            MapEntry::Occupied(group) => Ok(group.into_mut()),
            MapEntry::Vacant(vacant) => {
                let output = self.output(&place.name, place.of, Timeline::shared)?;
                Ok(vacant.insert(Group { output, members: 0 }))
            }
        }
    }

    fn by_rule(&self, rendition: &str) -> bool {
        self.settings.ladders.iter().any(|rule| rule.rendition(rendition).is_some())
    }

    /// Whether [`Registry::declare`] would change something.
    fn are_new(&self, tables: &Tables, name: &str, renditions: &[String]) -> bool {
        let is_known = |own: &String| tables.declared.contains_key(own) || self.by_rule(own);
        let alone = |own: &String| tables.entries.get(own).is_some_and(|entry| entry.lock().group.is_none());
        // A playlist whose renditions are not published takes no memory here.
        check_name(name) && !renditions.iter().all(is_known) && renditions.iter().any(alone)
    }

    /// Declares the renditions that an encoder's multivariant playlist names, if the encoder may publish stream `name` and each of them.
    /// Renditions that the encoder publishes as streams of their own become renditions of that stream.
    pub(crate) async fn declare(
        &self,
        name: &str,
        renditions: &[String],
        claim: &Claim,
    ) -> Result<(), Refusal> {
        let unpublished: Vec<&String> = {
            let tables = self.tables.lock();
            if !self.are_new(&tables, name, renditions) {
                return Ok(());
            }
            self.to_join(renditions)
                .map(|(_, own)| own)
                .filter(|own| !tables.entries.contains_key(*own))
                .collect()
        };
        // The encoders of one ladder may have a key for each rendition, and all of them push its playlist: those are no attempts.
        if !self.to_join(renditions).all(|(_, own)| self.access.may(own, claim)) {
            return Err(Refusal::Key);
        }
        // A hook has been asked about what is published. One that renames streams names the renditions' stream by their own names.
        if self.access.ask(name, claim).await? != name {
            return Ok(());
        }
        for own in unpublished {
            if self.access.ask_again(own, claim).await? != *own {
                return Ok(());
            }
        }
        self.join(name, renditions, claim)
    }

    /// The renditions that a playlist can declare, with their places in it.
    fn to_join<'a>(&self, renditions: &'a [String]) -> impl Iterator<Item = (usize, &'a String)> {
        renditions.iter().enumerate().filter(|(_, own)| !self.by_rule(own))
    }

    /// Refuses to make renditions of streams that another client publishes.
    fn check_publishers(&self, tables: &Tables, renditions: &[String], claim: &Claim) -> Result<(), Refusal> {
        for (_, own) in self.to_join(renditions) {
            let entry = tables.entries.get(own).map(|entry| entry.lock());
            if entry.is_some_and(|entry| entry.group.is_none() && !entry.claim.is_same(claim)) {
                return Err(Refusal::Foreign(own.clone()));
            }
        }
        Ok(())
    }

    fn join(&self, name: &str, renditions: &[String], claim: &Claim) -> Result<(), Refusal> {
        let mut tables = self.tables.lock();
        if !self.are_new(&tables, name, renditions) {
            return Ok(());
        }
        self.check_publishers(&tables, renditions, claim)?;
        for (index, own) in self.to_join(renditions) {
            let place =
                RenditionRef { name: name.to_owned(), rendition: index as u16 + 1, of: renditions.len() };
            let entry = tables.entries.get(own).cloned();
            let group = self.group(&mut tables, &place)?;
            if let Some(entry) = entry {
                let mut held = entry.lock();
                if held.group.is_some() {
                    continue;
                }
                tracing::info!(stream = name, rendition = own, "a published stream becomes a rendition");
                held.stream.move_to(group.output.clone(), place.rendition);
                held.group = Some(name.to_owned());
                group.members += 1;
            }
            tables.declared.insert(own.clone(), place);
        }
        Ok(())
    }

    /// Ends the stream if it has no publisher, and has had none since publisher `number`.
    fn end(&self, name: &str, number: u64) {
        let mut tables = self.tables.lock();
        let Some(entry) = tables.entries.get(name).cloned() else { return };
        let held = entry.lock();
        if held.publisher.is_some() || held.last != number {
            return;
        }
        tables.entries.remove(name);
        self.counters.remarks.forget(name);
        if let Some(group) = &held.group
            && let Some(own) = tables.groups.get_mut(group)
        {
            own.members -= 1;
            if own.members > 0 {
                tracing::info!(stream = group, rendition = name, "a rendition has ended");
                return;
            }
            tables.groups.remove(group);
            tables.declared.retain(|_, place| place.name != *group);
        }
        let output = held.stream.output();
        let mut output = output.lock();
        tracing::info!(stream = output.name, id = %output.id, "the stream has ended");
        output.end();
    }
}

impl Entry {
    /// The publisher, as operators see it.
    fn encoder(&self, name: String) -> Option<Encoder> {
        let (media, key_frames) = self.stream.media();
        let Claim { user, is_user, address, protocol, .. } = &self.claim;
        Some(Encoder {
            number: self.publisher?,
            name,
            rendition_of: self.group.clone(),
            user: user.clone().filter(|_| *is_user),
            address: address.to_canonical(),
            protocol,
            since: self.since,
            media,
            key_frames,
        })
    }

    /// Whether the client has lost the connection by which it publishes. Between two files of HTTP it is silent.
    fn is_left_by(&self, claim: &Claim) -> bool {
        let is_connection = self.claim.protocol == "rtmp" && claim.protocol == "rtmp";
        is_connection && self.claim.is_same(claim) && self.heard.elapsed() > SILENCE
    }
}

fn interrupt(stream: &mut Stream, name: &str) {
    if let Err(failure) = stream.interrupt() {
        tracing::warn!(stream = name, "the end of the stream is lost: {failure}");
    }
}

impl Publisher {
    /// Whether another publisher has taken its place, or an operator has ended it.
    pub(crate) fn is_gone(&self) -> bool {
        self.entry.lock().publisher != Some(self.number)
    }

    /// Another client goes on with the stream.
    pub(crate) fn renew(&self, claim: &Claim) {
        let mut held = self.entry.lock();
        if held.publisher == Some(self.number) {
            let is_user = held.claim.is_user && held.claim.is_same(claim);
            held.claim = Claim { is_user, ..claim.clone() };
        }
    }

    /// Writes to the stream, unless the publisher is gone.
    pub(crate) fn with<R>(
        &self,
        write: impl FnOnce(&mut Stream) -> Result<R, StreamFailure>,
    ) -> Result<Result<R, StreamFailure>, Gone> {
        let mut held = self.entry.lock();
        if held.publisher != Some(self.number) {
            let is_ended = held.is_ended && held.last == self.number;
            return Err(if is_ended { Gone::Ended } else { Gone::Replaced });
        }
        held.heard = Instant::now();
        Ok(write(&mut held.stream))
    }
}

/// A stream whose publisher is gone waits `linger_ms` for another one, and then ends.
impl Drop for Publisher {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (registry, name, claim) = (self.registry.clone(), self.name.clone(), self.claim.clone());
            runtime.spawn(async move { registry.access.tell_gone(&name, &claim).await });
        }
        let held = self.entry.lock();
        if held.publisher == Some(self.number) {
            self.registry.leave(&self.name, held);
        }
    }
}
