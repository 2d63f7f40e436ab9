//! The records of spaces at a subscriber: which of them it wants.

use std::collections::HashMap;
use std::sync::Arc;

use rbmq_wire::Levels;
use rocketbufs::{Epoch, InView, Position};

use crate::state::space_parts::{OpenPart, SpaceParts};
use crate::wire::{Attributes, Piece, RecordFault, Space, TopicName, UnpackError};

/// The most names that are remembered, with whether they are wanted: about 16 MiB with usual names.
const MAX_NAMES: usize = 1 << 17;

/// What a subscriber takes of the log of a space.
#[derive(Debug, Clone)]
pub(crate) struct SpaceView {
    pub(crate) space: Space,
    /// The filters of the subscriber.
    pub(crate) wanted: Arc<Levels<()>>,
    /// One of them is the name of the log: the subscriber wants all of it.
    wants_all: bool,
}

impl SpaceView {
    pub(crate) fn new(space: Space, wanted: Arc<Levels<()>>) -> Self {
        let wants_all = wanted.get(space.log().as_str()).is_some();
        Self { space, wanted, wants_all }
    }
}

/// Records of one topic that lie beside each other in the log of a space, as a copy.
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    pub(crate) epoch: Epoch,
    /// The start of the run.
    pub(crate) position: Position,
    /// Where to resume: the end of the run, if nothing else in it is wanted, and its start otherwise.
    pub(crate) end: Position,
    pub(crate) publisher: u32,
    /// In the place of records: what a publisher did wrong.
    pub(crate) fault: Option<UnpackError>,
    /// While it is open, nothing of the log from the position on is consumed.
    pub(crate) open: OpenPart,
}

impl Part {
    pub(crate) fn places(&self) -> PlacesInSpace {
        let (len, advance) = (self.bytes.len(), self.end.saturating_sub(self.position) as usize);
        PlacesInSpace { publisher: self.publisher, fault: self.fault, len, advance }
    }
}

/// The places of records of a space, whose bytes do not lie in the log as they do in their batch. For the bindings of other languages.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct PlacesInSpace {
    publisher: u32,
    fault: Option<UnpackError>,
    len: usize,
    advance: usize,
}

impl PlacesInSpace {
    /// In the place of records: what the publisher did wrong.
    pub fn fault(&self) -> Option<UnpackError> {
        self.fault
    }

    /// The publisher of all records.
    pub fn publisher(&self) -> u32 {
        self.publisher
    }

    /// Where to resume behind a record that ends here in the bytes, counted from the position of the batch.
    pub fn resume(&self, end: usize) -> usize {
        if end == self.len { self.advance } else { 0 }
    }

    /// The place of a record in the log.
    pub fn place<'a>(&self, piece: Piece<'a>) -> Piece<'a> {
        Piece { publisher: Some(self.publisher), from: 0, to: self.resume(piece.to), ..piece }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct SpaceReader {
    names: HashMap<TopicName, bool>,
    /// The one that was asked for last: most records have the topic of the record before.
    last: Option<(TopicName, bool)>,
    /// The filters for which `names` holds.
    wanted: Option<Arc<Levels<()>>>,
    logs: HashMap<Epoch, Arc<SpaceParts>>,
}

impl SpaceReader {
    /// The topic of a record; none if the subscriber does not want it.
    pub(crate) fn topic_of(
        &mut self,
        view: &SpaceView,
        attributes: Attributes<'_>,
    ) -> Result<Option<TopicName>, RecordFault> {
        let name = attributes.topic().filter(|name| view.space.contains(name)).ok_or(RecordFault::Topic)?;
        if self.wanted.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &view.wanted)) {
            self.names.clear();
            self.last = None;
            self.wanted = Some(view.wanted.clone());
        }
        let last = match self.last.take().filter(|(topic, _)| topic.as_str() == name) {
            Some(last) => last,
            None => self.look_up(view, name)?,
        };
        let (topic, wanted) = self.last.insert(last);
        Ok((view.wants_all || *wanted).then(|| topic.clone()))
    }

    /// A name, and whether it is wanted.
    fn look_up(&mut self, view: &SpaceView, name: &str) -> Result<(TopicName, bool), RecordFault> {
        // The names are those of all spaces.
        if let Some((topic, wanted)) = self.names.get_key_value(name) {
            return Ok((topic.clone(), *wanted));
        }
        let topic: TopicName = name.parse().map_err(|_| RecordFault::Topic)?;
        let wanted = view.wanted.any_matches(&topic);
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(topic.clone(), wanted);
        Ok((topic, wanted))
    }

    /// The application gets a part of a log.
    pub(crate) fn hand_out(&mut self, epoch: Epoch, from: Position, to: Position) -> OpenPart {
        self.log(epoch).hand_out(from, to)
    }

    /// Everything of a view below `to` was handed out or is not wanted. It is consumed when nothing of the log before it is open or given up.
    pub(crate) fn retire(&mut self, view: InView, to: Position, received: bool) {
        self.log(view.epoch()).retire(view, to, received);
    }

    fn log(&mut self, epoch: Epoch) -> &Arc<SpaceParts> {
        if !self.logs.contains_key(&epoch) {
            self.logs.retain(|_, log| !log.is_idle());
        }
        self.logs.entry(epoch).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::AttributesBuf;

    fn view(pattern: &str, filters: &[&str]) -> SpaceView {
        let mut wanted = Levels::default();
        filters.iter().for_each(|filter| _ = wanted.insert(filter, ()));
        SpaceView::new(Space::new(&pattern.parse().unwrap()).unwrap(), Arc::new(wanted))
    }

    fn topic_of(
        reader: &mut SpaceReader,
        view: &SpaceView,
        name: &str,
    ) -> Result<Option<String>, RecordFault> {
        let mut attributes = AttributesBuf::new();
        attributes.topic(name).unwrap();
        Ok(reader.topic_of(view, attributes.attributes())?.map(|topic| topic.to_string()))
    }

    #[test]
    fn only_names_of_the_space_are_believed() {
        let (mut reader, all) = (SpaceReader::default(), view("d/#", &["#"]));
        assert_eq!(topic_of(&mut reader, &all, "d/1"), Ok(Some("d/1".into())));
        for name in ["e", "", "d/+", "d/\n", "$SYS/x", &format!("d/{}", "x".repeat(254))] {
            assert_eq!(topic_of(&mut reader, &all, name), Err(RecordFault::Topic), "{name}");
        }
        assert_eq!(reader.topic_of(&all, Attributes::EMPTY), Err(RecordFault::Topic));
        assert_eq!(topic_of(&mut reader, &view("#", &["#"]), "$SYS/x"), Err(RecordFault::Topic));
    }

    #[test]
    fn who_wants_a_log_by_its_name_wants_nothing_more_of_another_space() {
        let mut wanted = Levels::default();
        wanted.insert("$space", ());
        let wanted = Arc::new(wanted);
        let [all, some] =
            ["#", "d/#"].map(|pattern| SpaceView::new(view(pattern, &[]).space, wanted.clone()));
        let mut reader = SpaceReader::default();
        for _ in 0..2 {
            assert_eq!(topic_of(&mut reader, &some, "d/1"), Ok(None));
            assert_eq!(topic_of(&mut reader, &all, "d/1"), Ok(Some("d/1".into())));
        }
    }

    #[test]
    fn remembered_names_follow_the_filters_and_are_bounded() {
        let mut reader = SpaceReader::default();
        let (one, other) = (view("#", &["a/+"]), view("#", &["+/b"]));
        for _ in 0..2 {
            assert_eq!(topic_of(&mut reader, &one, "a/b"), Ok(Some("a/b".into())));
            assert_eq!(topic_of(&mut reader, &one, "c/b"), Ok(None));
            assert_eq!(topic_of(&mut reader, &other, "c/b"), Ok(Some("c/b".into())));
            assert_eq!(topic_of(&mut reader, &other, "a/c"), Ok(None));
        }
        for n in 0..=MAX_NAMES {
            topic_of(&mut reader, &one, &format!("x/{n}")).unwrap();
        }
        assert!(reader.names.len() <= MAX_NAMES);
    }
}
