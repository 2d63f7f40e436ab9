//! The folder of a topic, and the name of the topic in it.
//!
//! The file `topic` has the name, since that of the folder may be cut. Where the two differ the file was damaged, or the folder is a copy: a copy
//! has the folder that it names beside it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use private_files::GivenFile;
use rbmq_wire::{MAX_TOPIC_BYTES, TopicName};
use tracing::warn;

use super::error::KeepError;

/// The longest name of a folder, in bytes.
const MAX_FOLDER_BYTES: usize = 200;
/// The file with the name.
const NAME_FILE: &str = "topic";

/// The topic that the file in a folder names.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Topic(TopicName),
    Damaged(String),
    Missing,
}

/// Writes the topic's name into a new folder, or compares it. A damaged name is written again.
pub(super) fn write_name(dir: &Path, topic: &TopicName) -> Result<(), KeepError> {
    let named = named(dir)?;
    if let Some(other) = read_name(dir)?.filter(|name| name != topic) {
        return Err(foreign(dir, format!("it belongs to topic '{other}'")));
    }
    if named == Named::Topic(topic.clone()) {
        return Ok(());
    }
    if named != Named::Missing {
        warn!("topic '{topic}': its name in {} was damaged, and is written again", dir.display());
    }
    let (path, new) = (dir.join(NAME_FILE), dir.join("topic.new"));
    private_files::write(&new, topic.as_str().as_bytes()).map_err(KeepError::file(&new))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(KeepError::file(&new))?;
    fs::rename(&new, &path).map_err(KeepError::file(&path))?;
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(KeepError::file(dir))
}

/// The topic of a folder; none if it has no name yet.
pub(super) fn read_name(dir: &Path) -> Result<Option<TopicName>, KeepError> {
    let own = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
    match (named(dir)?, topic_of(own)) {
        (Named::Topic(topic), by_folder) if folder(&topic) == own || by_folder.is_none() => Ok(Some(topic)),
        (Named::Topic(topic), _) if dir.with_file_name(folder(&topic)).exists() => {
            Err(foreign(dir, format!("it belongs to topic '{topic}', which has another folder")))
        }
        // A folder that has nothing yet belongs to nobody.
        (Named::Missing, _) if !dir.join("log").is_dir() => Ok(None),
        (_, Some(topic)) => Ok(Some(topic)),
        (Named::Damaged(reason), None) => Err(foreign(dir, reason)),
        (_, None) => Ok(None),
    }
}

fn foreign(dir: &Path, reason: String) -> KeepError {
    KeepError::Foreign { path: dir.to_owned(), reason }
}

fn named(dir: &Path) -> Result<Named, KeepError> {
    let path = dir.join(NAME_FILE);
    match GivenFile::open(&path).and_then(|file| file.text(MAX_TOPIC_BYTES as u64)) {
        Ok(name) => Ok(name.parse().map_or_else(
            |error: rbmq_wire::TopicError| {
                Named::Damaged(format!("its file 'topic' has no name of a topic: {error}"))
            },
            Named::Topic,
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Named::Missing),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Named::Damaged(error.to_string())),
        Err(source) => Err(KeepError::File { path, source }),
    }
}

/// The topic whose folder has this name; none if it is no such name, or one that is cut.
fn topic_of(name: &str) -> Option<TopicName> {
    let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    let topic: TopicName = String::from_utf8(bytes).ok()?.parse().ok()?;
    (folder(&topic) == name).then_some(topic)
}

/// The name of a topic's folder. Two topics have two folders: a long name is cut and gets its checksum and length.
pub(crate) fn folder(topic: &TopicName) -> String {
    let mut name = String::new();
    for byte in topic.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            b'.' if !name.is_empty() => name.push('.'),
            other => name.push_str(&format!("%{other:02X}")),
        }
    }
    if name.len() > MAX_FOLDER_BYTES {
        let bytes = topic.as_str().as_bytes();
        // Two checksums of different bytes: one alone has too few bits.
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        let sums = (checksum(bytes), checksum(&reversed));
        name.truncate(MAX_FOLDER_BYTES - 24);
        name.push_str(&format!("%{:08x}{:08x}", sums.0, sums.1));
    }
    name
}

fn checksum(bytes: &[u8]) -> u32 {
    // FNV-1a: names are not secret, and a collision is refused (`write_name`).
    bytes.iter().fold(0x811c_9dc5, |sum: u32, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        name.parse().unwrap()
    }

    #[test]
    fn folders_say_their_topics_unless_they_are_cut() {
        for name in ["plant/sensors", ".a", "a.b", "$space/x", "\u{e4}/%41"] {
            assert_eq!(topic_of(&folder(&topic(name))), Some(topic(name)));
        }
        for name in ["", "lost+found", "%2f", "%4", "%41", "%FF", &folder(&topic(&"\u{e4}".repeat(120)))] {
            assert_eq!(topic_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_damaged_name_is_written_again_and_a_copy_is_no_topic() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join(folder(&topic("k/2/x")));
        fs::create_dir_all(own.join("log")).unwrap();
        for damage in [Some("c/2/x"), Some("k/2"), Some(""), Some("k/2/\0"), Some("k/#"), None] {
            match damage {
                Some(text) => fs::write(own.join(NAME_FILE), text).unwrap(),
                None => fs::remove_file(own.join(NAME_FILE)).unwrap(),
            }
            assert_eq!(read_name(&own).unwrap(), Some(topic("k/2/x")), "{damage:?}");
            assert!(write_name(&own, &topic("c/2/x")).is_err());
            write_name(&own, &topic("k/2/x")).unwrap();
            assert_eq!(fs::read_to_string(own.join(NAME_FILE)).unwrap(), "k/2/x");
        }
        let copy = dir.path().join("copy");
        fs::create_dir_all(copy.join("log")).unwrap();
        fs::write(copy.join(NAME_FILE), "k/2/x").unwrap();
        let refused = read_name(&copy).unwrap_err();
        assert!(refused.to_string().contains("'k/2/x', which has another folder"), "{refused}");
        let new = dir.path().join("new");
        fs::create_dir(&new).unwrap();
        assert_eq!(read_name(&new).unwrap(), None);
    }
}
