//! Messages about groups: workers that share a kept topic.
//!
//! ```text
//!   worker ── JOIN ──▶ broker      the worker subscribes to the buffer of JOINED, which is for it alone
//!          ◀─ JOINED ─             its deliveries are: position u64, attempt u16, 0 u16, record; repeated
//!          ── MARKS ─▶             acknowledged, given back, needs more time
//!          ◀─ MARKED ─             what so many marks say is in the journal, but of those that were refused
//!          ── LEAVE ─▶             nothing more: the buffer ends, and the worker gives back what it has not begun with
//! ```

use rocketbufs::fields::Reader;

use super::{DecodeError, TopicName};

/// The first types of messages about groups, and of the last.
const FIRST: u8 = 0x40;
const LAST: u8 = 0x48;

const JOIN: u8 = 0x40;
const JOINED: u8 = 0x41;
const REFUSED: u8 = 0x42;
const MARKS: u8 = 0x43;
const MARKED: u8 = 0x44;
const ASK: u8 = 0x45;
const ROWS: u8 = 0x46;
const FAILED: u8 = 0x47;
const LEAVE: u8 = 0x48;

/// The version of these messages.
const VERSION: u8 = 2;

/// The longest name of a group in bytes.
pub const MAX_GROUP_NAME_BYTES: usize = 64;

/// The bytes before a record in a delivery to a worker: position, attempt, two zeros.
pub const GROUP_HEADER_BYTES: usize = 12;

/// The most marks of a message, which is small enough for every peer.
pub const MAX_MARKS: usize = 130;

/// The bytes of a mark, and those before the first one.
const MARK_BYTES: usize = 15;
const MARKS_HEADER_BYTES: usize = 11;

const _: () = assert!(MARKS_HEADER_BYTES + MARK_BYTES * MAX_MARKS <= super::Control::SMALL_BYTES);

/// The most rows of a page of groups.
pub const MAX_GROUP_ROWS: usize = 16;

/// The name of a group: 1 to 64 letters, digits and `. _ -`, not beginning with a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct GroupName(String);

/// A name is none for a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no name of a group: 1 to 64 letters (a to z, A to Z), digits, and . _ -, not beginning with a dot"
)]
pub struct GroupNameError(String);

impl std::str::FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<Self, GroupNameError> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=MAX_GROUP_NAME_BYTES).contains(&text.len()) && !text.starts_with('.');
        if fits && text.bytes().all(is_fine) {
            return Ok(Self(text.to_owned()));
        }
        Err(GroupNameError(text.chars().take(MAX_GROUP_NAME_BYTES).collect()))
    }
}

impl GroupName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A worker asks for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupJoin {
    /// The kept topic.
    pub topic: TopicName,
    /// The group.
    pub group: GroupName,
    /// The most messages that the worker has at a time.
    pub credit: u32,
    /// A group that does not exist begins with the next message, and not with the oldest one that is kept.
    pub from_newest: bool,
    /// How long a worker of a new group may have a message, in milliseconds.
    pub ack_ms: u32,
    /// After so many failed attempts a message of a new group goes to its dead-letter topic; 0: never.
    pub max_attempts: u16,
    /// The dead-letter topic of a new group.
    pub dead_letter: Option<TopicName>,
    /// Messages of a new group with the same key are handed out one after the other.
    pub ordered: bool,
}

/// What a worker says of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MarkKind {
    /// It is done.
    Ack = 1,
    /// It is not done: others get it, after the time of the mark.
    Nack = 2,
    /// The worker needs the time of the mark, from now on.
    Extend = 3,
    /// The worker has not begun with it.
    Release = 4,
    /// The worker works on it no more, and does not say how it ended: others get it after its time.
    Drop = 5,
}

/// A worker's word about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The word.
    pub kind: MarkKind,
    /// The message.
    pub position: u64,
    /// Which attempt it was.
    pub attempt: u16,
    /// The time of the word, in milliseconds.
    pub ms: u32,
}

/// What is asked about groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupAction {
    /// The groups behind this one, in the order of topics and names.
    List,
    /// The group begins anew with the oldest kept message.
    ResetOldest,
    /// The group begins anew with the next message.
    ResetNewest,
    /// The group begins anew with the first message at this position or behind it.
    ResetTo(u64),
    /// The group is forgotten, and its workers are disconnected.
    Delete,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct GroupStats {
    /// The topic.
    pub topic: TopicName,
    /// The group.
    pub group: GroupName,
    /// Its workers.
    pub workers: u32,
    /// Messages that were read and are not done.
    pub pending: u64,
    /// Messages of those that workers have.
    pub held: u64,
    /// Everything below is done.
    pub floor: u64,
    /// Everything below was read.
    pub next: u64,
    /// The end of the topic's log.
    pub end: u64,
    /// Messages that were handed out since the broker started, each time.
    pub delivered: u64,
    /// Messages that were acknowledged since the broker started.
    pub acked: u64,
    /// Failed attempts since the broker started.
    pub failed: u64,
    /// Messages that went to the dead-letter topic since the broker started.
    pub dead: u64,
    /// Messages that the log had no more before they were done, since the broker started.
    pub lost: u64,
    /// Bytes that the log had no more before they were read, since the broker started.
    pub lost_bytes: u64,
    /// Bytes of the journal that were damaged: acknowledged messages may come twice.
    pub damaged_bytes: u64,
    /// How long a worker may have a message, in milliseconds; 0: any time, as the group is one of named consumers of Redis.
    pub ack_ms: u32,
    /// The most failed attempts; 0: no limit.
    pub max_attempts: u16,
    /// The dead-letter topic; empty: none.
    pub dead_letter: String,
    /// Messages with the same key are handed out one after the other.
    pub ordered: bool,
    /// The limit of pending messages is reached, and nothing more is read.
    pub full: bool,
    /// The disk does not take acknowledgements, or does not give messages.
    pub failing: bool,
}

impl GroupStats {
    /// Bytes of the log that are not done: from the floor to the end.
    pub fn lag_bytes(&self) -> u64 {
        self.end.saturating_sub(self.floor)
    }

    /// Bytes of the log that were not read yet.
    pub fn unread_bytes(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }
}

/// A message about groups.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupMessage {
    /// Worker → broker: asks for a group, and creates it where it does not exist. One group for each connection.
    Join(GroupJoin),
    /// Broker → worker: the buffer that brings the worker's messages.
    Joined {
        /// The buffer.
        bid: u32,
        /// What the group is since it began anew: the messages of the buffer are of this generation.
        generation: u64,
        /// The largest delivery.
        max_delivery_bytes: u64,
        /// How long the worker may have a message.
        ack_ms: u32,
    },
    /// Broker → worker: no, or not any more.
    Refused {
        /// Whether the worker may ask again a little later.
        again: bool,
        /// The reason, for people.
        reason: String,
    },
    /// Worker → broker.
    Marks {
        /// The generation of the messages.
        generation: u64,
        /// The words.
        marks: Vec<Mark>,
    },
    /// Broker → worker: what so many marks since JOINED say is in the journal.
    Marked {
        /// The number.
        count: u64,
        /// The number of those among them that were not taken: of another generation, or the group has no room to remember them. Their
        /// messages come, or come again.
        refused: u64,
    },
    /// Worker → broker: it gets nothing more, and its buffer ends. It says of each message that it has what is to become of it, and goes.
    Leave,
    /// Client → broker: a question about groups.
    Ask {
        /// The number of the question.
        request: u32,
        /// What is asked.
        action: GroupAction,
        /// The group; of a list, the one before the first row.
        of: Option<(TopicName, GroupName)>,
    },
    /// Broker → client: the groups, or none after another action.
    Rows {
        /// The number of the question.
        request: u32,
        /// Whether more groups follow behind the last one.
        more: bool,
        /// The groups.
        rows: Vec<GroupStats>,
    },
    /// Broker → client: nothing was done.
    Failed {
        /// The number of the question.
        request: u32,
        /// The reason, for people.
        reason: String,
    },
}

impl GroupMessage {
    /// Whether bytes are a message about groups.
    pub fn is(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|kind| (FIRST..=LAST).contains(kind))
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(64);
        match self {
            Self::Join(join) => put_join(&mut b, join),
            Self::Joined { bid, generation, max_delivery_bytes, ack_ms } => {
                b.push(JOINED);
                b.extend_from_slice(&bid.to_le_bytes());
                b.extend_from_slice(&generation.to_le_bytes());
                b.extend_from_slice(&max_delivery_bytes.to_le_bytes());
                b.extend_from_slice(&ack_ms.to_le_bytes());
            }
            Self::Refused { again, reason } => {
                b.extend_from_slice(&[REFUSED, u8::from(*again)]);
                put_text(&mut b, reason);
            }
            Self::Marks { generation, marks } => put_marks(&mut b, *generation, marks),
            Self::Marked { count, refused } => {
                b.push(MARKED);
                b.extend_from_slice(&count.to_le_bytes());
                b.extend_from_slice(&refused.to_le_bytes());
            }
            Self::Leave => b.push(LEAVE),
            Self::Ask { request, action, of } => put_ask(&mut b, *request, *action, of.as_ref()),
            Self::Rows { request, more, rows } => {
                b.push(ROWS);
                b.extend_from_slice(&request.to_le_bytes());
                b.extend_from_slice(&[u8::from(*more), u8::try_from(rows.len()).unwrap_or(u8::MAX)]);
                rows.iter().take(u8::MAX.into()).for_each(|row| put_row(&mut b, row));
            }
            Self::Failed { request, reason } => {
                b.push(FAILED);
                b.extend_from_slice(&request.to_le_bytes());
                put_text(&mut b, reason);
            }
        }
        b
    }

    /// Decodes a message of a peer.
    ///
    /// # Errors
    /// The bytes are not a valid message. Close the connection with the error as the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            JOIN => Self::Join(get_join(&mut r)?),
            JOINED => {
                let (bid, generation) = (r.u32()?, r.u64()?);
                Self::Joined { bid, generation, max_delivery_bytes: r.u64()?, ack_ms: r.u32()? }
            }
            REFUSED => Self::Refused { again: get_flag(&mut r)?, reason: get_text(&mut r)? },
            MARKS => get_marks(&mut r)?,
            MARKED => Self::Marked { count: r.u64()?, refused: r.u64()? },
            LEAVE => Self::Leave,
            ASK => get_ask(&mut r)?,
            ROWS => {
                let (request, more) = (r.u32()?, get_flag(&mut r)?);
                let count = r.u8()?;
                let rows = (0..count).map(|_| get_row(&mut r)).collect::<Result<_, _>>()?;
                Self::Rows { request, more, rows }
            }
            FAILED => Self::Failed { request: r.u32()?, reason: get_text(&mut r)? },
            other => return Err(DecodeError::value("type of message", other)),
        };
        r.end()?;
        Ok(message)
    }
}

fn put_name(b: &mut Vec<u8>, name: &str) {
    b.push(name.len() as u8);
    b.extend_from_slice(name.as_bytes());
}

fn put_text(b: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.floor_char_boundary(super::Control::MAX_TEXT_BYTES)];
    b.extend_from_slice(&(text.len() as u16).to_le_bytes());
    b.extend_from_slice(text);
}

fn get_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    Ok(r.text16(super::Control::MAX_TEXT_BYTES, "text")?.to_owned())
}

fn get_topic(r: &mut Reader<'_>) -> Result<TopicName, DecodeError> {
    let len = usize::from(r.u8()?);
    Ok(r.text(len, "topic's name")?.parse::<TopicName>()?)
}

fn get_group(r: &mut Reader<'_>) -> Result<GroupName, DecodeError> {
    let len = usize::from(r.u8()?);
    let name = r.text(len, "group's name")?;
    name.parse().map_err(|_| DecodeError::value("length or byte of a group's name", len as u64))
}

fn get_flag(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match r.u8()? {
        flag @ (0 | 1) => Ok(flag == 1),
        other => Err(DecodeError::value("flag", other)),
    }
}

fn put_join(b: &mut Vec<u8>, join: &GroupJoin) {
    b.extend_from_slice(&[JOIN, VERSION]);
    put_name(b, join.topic.as_str());
    put_name(b, join.group.as_str());
    b.extend_from_slice(&join.credit.to_le_bytes());
    b.push(u8::from(join.from_newest) | u8::from(join.ordered) << 1);
    b.extend_from_slice(&join.ack_ms.to_le_bytes());
    b.extend_from_slice(&join.max_attempts.to_le_bytes());
    put_name(b, join.dead_letter.as_ref().map_or("", TopicName::as_str));
}

fn get_join(r: &mut Reader<'_>) -> Result<GroupJoin, DecodeError> {
    match r.u8()? {
        VERSION => {}
        theirs => return Err(DecodeError::Version { theirs, ours: VERSION }),
    }
    let (topic, group, credit) = (get_topic(r)?, get_group(r)?, r.u32()?);
    let flags = r.u8()?;
    if flags > 3 {
        return Err(DecodeError::value("flags", flags));
    }
    let (ack_ms, max_attempts) = (r.u32()?, r.u16()?);
    let len = usize::from(r.u8()?);
    let name = r.text(len, "topic's name")?;
    let dead_letter = if name.is_empty() { None } else { Some(name.parse::<TopicName>()?) };
    let (from_newest, ordered) = (flags & 1 != 0, flags & 2 != 0);
    Ok(GroupJoin { topic, group, credit, from_newest, ack_ms, max_attempts, dead_letter, ordered })
}

fn put_marks(b: &mut Vec<u8>, generation: u64, marks: &[Mark]) {
    b.push(MARKS);
    b.extend_from_slice(&generation.to_le_bytes());
    b.extend_from_slice(&u16::try_from(marks.len()).unwrap_or(u16::MAX).to_le_bytes());
    for Mark { kind, position, attempt, ms } in marks.iter().take(u16::MAX.into()) {
        b.push(*kind as u8);
        b.extend_from_slice(&position.to_le_bytes());
        b.extend_from_slice(&attempt.to_le_bytes());
        b.extend_from_slice(&ms.to_le_bytes());
    }
}

fn get_marks(r: &mut Reader<'_>) -> Result<GroupMessage, DecodeError> {
    let (generation, count) = (r.u64()?, usize::from(r.u16()?));
    if count > MAX_MARKS {
        return Err(DecodeError::value("number of marks", count as u64));
    }
    let marks = (0..count).map(|_| get_mark(r)).collect::<Result<_, _>>()?;
    Ok(GroupMessage::Marks { generation, marks })
}

fn get_mark(r: &mut Reader<'_>) -> Result<Mark, DecodeError> {
    let kind = match r.u8()? {
        1 => MarkKind::Ack,
        2 => MarkKind::Nack,
        3 => MarkKind::Extend,
        4 => MarkKind::Release,
        5 => MarkKind::Drop,
        other => return Err(DecodeError::value("mark", other)),
    };
    Ok(Mark { kind, position: r.u64()?, attempt: r.u16()?, ms: r.u32()? })
}

fn put_ask(b: &mut Vec<u8>, request: u32, action: GroupAction, of: Option<&(TopicName, GroupName)>) {
    b.push(ASK);
    b.extend_from_slice(&request.to_le_bytes());
    let (code, position) = match action {
        GroupAction::List => (1, 0),
        GroupAction::ResetOldest => (2, 0),
        GroupAction::ResetNewest => (3, 0),
        GroupAction::ResetTo(position) => (4, position),
        GroupAction::Delete => (5, 0),
    };
    b.push(code);
    b.extend_from_slice(&position.to_le_bytes());
    b.push(u8::from(of.is_some()));
    if let Some((topic, group)) = of {
        put_name(b, topic.as_str());
        put_name(b, group.as_str());
    }
}

fn get_ask(r: &mut Reader<'_>) -> Result<GroupMessage, DecodeError> {
    let (request, code, position) = (r.u32()?, r.u8()?, r.u64()?);
    let action = match code {
        1 => GroupAction::List,
        2 => GroupAction::ResetOldest,
        3 => GroupAction::ResetNewest,
        4 => GroupAction::ResetTo(position),
        5 => GroupAction::Delete,
        other => return Err(DecodeError::value("action", other)),
    };
    let of = if get_flag(r)? { Some((get_topic(r)?, get_group(r)?)) } else { None };
    Ok(GroupMessage::Ask { request, action, of })
}

pub(super) fn put_row(b: &mut Vec<u8>, row: &GroupStats) {
    put_name(b, row.topic.as_str());
    put_name(b, row.group.as_str());
    b.extend_from_slice(&row.workers.to_le_bytes());
    for value in numbers(row) {
        b.extend_from_slice(&value.to_le_bytes());
    }
    b.extend_from_slice(&row.ack_ms.to_le_bytes());
    b.extend_from_slice(&row.max_attempts.to_le_bytes());
    put_name(b, &row.dead_letter[..row.dead_letter.floor_char_boundary(super::MAX_TOPIC_BYTES)]);
    b.push(u8::from(row.ordered) | u8::from(row.full) << 1 | u8::from(row.failing) << 2);
}

fn numbers(row: &GroupStats) -> [u64; 12] {
    let GroupStats { pending, held, floor, next, end, delivered, acked, failed, .. } = *row;
    let GroupStats { dead, lost, lost_bytes, damaged_bytes, .. } = *row;
    [pending, held, floor, next, end, delivered, acked, failed, dead, lost, lost_bytes, damaged_bytes]
}

pub(super) fn get_row(r: &mut Reader<'_>) -> Result<GroupStats, DecodeError> {
    let (topic, group, workers) = (get_topic(r)?, get_group(r)?, r.u32()?);
    let mut numbers = [0; 12];
    for number in &mut numbers {
        *number = r.u64()?;
    }
    let [pending, held, floor, next, end, delivered, acked, failed, dead, lost, lost_bytes, damaged_bytes] =
        numbers;
    let (ack_ms, max_attempts) = (r.u32()?, r.u16()?);
    let len = usize::from(r.u8()?);
    let dead_letter = r.text(len, "topic's name")?.to_owned();
    let flags = r.u8()?;
    if flags > 7 {
        return Err(DecodeError::value("flags", flags));
    }
    let (ordered, full, failing) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    Ok(GroupStats {
        topic,
        group,
        workers,
        pending,
        held,
        floor,
        next,
        end,
        delivered,
        acked,
        failed,
        dead,
        lost,
        lost_bytes,
        damaged_bytes,
        ack_ms,
        max_attempts,
        dead_letter,
        ordered,
        full,
        failing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(topic: TopicName, group: GroupName) -> GroupStats {
        GroupStats {
            topic,
            group,
            workers: 1,
            pending: 2,
            held: 3,
            floor: 4,
            next: 5,
            end: 6,
            delivered: 7,
            acked: 8,
            failed: 9,
            dead: 10,
            lost: 11,
            lost_bytes: 12,
            damaged_bytes: 13,
            ack_ms: 14,
            max_attempts: 15,
            dead_letter: "dead".into(),
            ordered: true,
            full: false,
            failing: true,
        }
    }

    fn messages() -> Vec<GroupMessage> {
        let topic: TopicName = "orders".parse().unwrap();
        let group: GroupName = "billing".parse().unwrap();
        let join = GroupJoin {
            topic: topic.clone(),
            group: group.clone(),
            credit: 7,
            from_newest: true,
            ack_ms: 3,
            max_attempts: 5,
            dead_letter: Some("dead".parse().unwrap()),
            ordered: true,
        };
        let row = row(topic.clone(), group.clone());
        let mark = |kind| Mark { kind, position: u64::MAX - 1, attempt: 2, ms: 9 };
        let kinds = [MarkKind::Ack, MarkKind::Nack, MarkKind::Extend, MarkKind::Release, MarkKind::Drop];
        let of = Some((topic, group));
        vec![
            GroupMessage::Join(GroupJoin { dead_letter: None, ..join.clone() }),
            GroupMessage::Join(join),
            GroupMessage::Joined { bid: 1, generation: 8, max_delivery_bytes: 2, ack_ms: 3 },
            GroupMessage::Refused { again: true, reason: "no".into() },
            GroupMessage::Marks { generation: 6, marks: kinds.map(mark).into() },
            GroupMessage::Marked { count: 5, refused: 1 },
            GroupMessage::Leave,
            GroupMessage::Ask { request: 1, action: GroupAction::List, of: None },
            GroupMessage::Ask { request: 1, action: GroupAction::ResetTo(9), of: of.clone() },
            GroupMessage::Ask { request: 1, action: GroupAction::Delete, of },
            GroupMessage::Rows { request: 2, more: true, rows: vec![row.clone(), row] },
            GroupMessage::Failed { request: 3, reason: "no".into() },
        ]
    }

    #[test]
    fn messages_come_back_and_no_part_of_them_does() {
        for message in messages() {
            let bytes = message.encode();
            assert!(GroupMessage::is(&bytes));
            assert_eq!(GroupMessage::decode(&bytes).as_ref(), Ok(&message));
            for cut in 0..bytes.len() {
                assert!(GroupMessage::decode(&bytes[..cut]).is_err(), "{message:?} cut at {cut}");
            }
            assert!(GroupMessage::decode(&[&bytes[..], &[0]].concat()).is_err());
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0xff;
                // An error or another message, and no panic.
                let _ = GroupMessage::decode(&damaged);
            }
        }
    }

    #[test]
    fn a_page_of_groups_fits_into_a_control_message() {
        let long = "x".repeat(crate::MAX_TOPIC_BYTES);
        let GroupMessage::Rows { rows, .. } = &messages()[10] else { panic!("rows") };
        let row = GroupStats {
            topic: long.parse().unwrap(),
            group: "g".repeat(MAX_GROUP_NAME_BYTES).parse().unwrap(),
            dead_letter: long,
            ..rows[0].clone()
        };
        let page = GroupMessage::Rows { request: 1, more: true, rows: vec![row; MAX_GROUP_ROWS] };
        assert!(page.encode().len() <= crate::Control::MAX_BYTES);
    }

    #[test]
    fn names_of_groups_are_names_of_files() {
        assert!("a-Z_0.9".parse::<GroupName>().is_ok());
        for name in ["", ".", "..", ".a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(name.parse::<GroupName>().is_err(), "{name}");
        }
    }
}
