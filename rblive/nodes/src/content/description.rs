//! The description of a stream: what a player must know before it fetches media.

use rblive_media::rendition::{Container, Rendition};
use rblive_media::window::NewPart;
use serde::{Deserialize, Serialize};

use super::header::{Flags, Header};

/// The longest description in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 64 << 10;
/// The longest name of a stream in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The longest target duration of segments in microseconds: an hour.
pub const MAX_TARGET_US: u64 = 3_600_000_000;
/// The most renditions of a stream.
pub const MAX_RENDITIONS: usize = 64;
/// The longest list of codecs in bytes.
const MAX_CODECS_BYTES: usize = 255;
/// The longest tag of a language in bytes.
const MAX_LANGUAGE_BYTES: usize = 35;

/// The description of a stream.
///
/// ```
/// use rblive::content::{Container, Description, Rendition, Video};
///
/// let description = Description {
///     name: "camera/1".into(),
///     container: Container::Cmaf,
///     target_duration_us: 2_000_000,
///     part_target_us: Some(200_000),
///     renditions: vec![Rendition {
///         id: 1,
///         codecs: "avc1.64001f".into(),
///         bandwidth: 2_000_000,
///         video: Some(Video { width: 1280, height: 720, frames_per_1000_s: 30_000 }),
///         audio: None,
///     }],
/// };
/// let json = description.to_json()?;
/// assert_eq!(Description::from_json(&json)?, description);
/// # Ok::<(), rblive::content::DescriptionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name of the stream: see [`check_name`].
    pub name: String,
    /// The container of all renditions.
    pub container: Container,
    /// The longest duration of a segment in microseconds: 1 to [`MAX_TARGET_US`].
    pub target_duration_us: u64,
    /// The longest duration of a part in microseconds, if segments have parts. In a stream of MPEG-TS without it each chunk of media is a
    /// whole segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_target_us: Option<u64>,
    /// The renditions, the preferred one first.
    pub renditions: Vec<Rendition>,
}

/// Why a description is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The text is too long.
    #[error("a description has at most {MAX_DESCRIPTION_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// The text is no description.
    #[error("the description of a stream is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// The name is not allowed.
    #[error(
        "'{}' is no name of a stream: 1 to 255 letters, digits and . _ - /, without an empty part or a part of dots",
        .0.escape_default()
    )]
    Name(String),
    /// The description has no renditions, or too many.
    #[error("a stream has 1 to {MAX_RENDITIONS} renditions, this one has {0}")]
    Renditions(usize),
    /// An id is 0 or occurs twice.
    #[error("the id {0} of a rendition is 0 or occurs twice")]
    Id(u16),
    /// A list of codecs or a language has characters that a playlist cannot have, or is too long.
    #[error("'{}' is no list of codecs and no language", .0.escape_default())]
    Text(String),
    /// A duration is zero or too long, or the part's is longer than the segment's.
    #[error("the target durations are zero or over an hour, or the part's is longer than the segment's")]
    Duration,
}

impl Description {
    /// Whether the media of a chunk of this stream is the last of its segment.
    pub fn ends_segment(&self, header: &Header) -> bool {
        let is_whole = self.container == Container::Ts && self.part_target_us.is_none();
        is_whole || header.flags.contains(Flags::LAST_PART)
    }

    /// The part of a segment that a chunk of media is. `init` is the number of the initialisation segment that it needs, `data` the place
    /// of its bytes.
    pub fn part<T>(&self, header: &Header, init: u32, data: T) -> NewPart<T> {
        NewPart {
            sequence: header.sequence,
            index: header.part,
            start_us: header.start_us,
            duration_us: header.duration_us,
            produced_ns: header.produced_ns,
            independent: header.flags.contains(Flags::INDEPENDENT),
            discontinuity: header.flags.contains(Flags::DISCONTINUITY),
            timeline: Some(header.discontinuities).filter(|number| *number > 0),
            last: self.ends_segment(header),
            bytes: header.payload_bytes,
            init,
            data,
        }
    }

    /// The text, as a chunk carries it.
    ///
    /// # Errors
    /// The description is not valid.
    pub fn to_json(&self) -> Result<Vec<u8>, DescriptionError> {
        self.check()?;
        let json = serde_json::to_vec(self)?;
        if json.len() > MAX_DESCRIPTION_BYTES {
            return Err(DescriptionError::TooLong(json.len()));
        }
        Ok(json)
    }

    /// Reads the text of a peer. An accepted description has nothing that would change the meaning of a playlist.
    ///
    /// # Errors
    /// The text is no description, or the description is not valid.
    pub fn from_json(json: &[u8]) -> Result<Self, DescriptionError> {
        if json.len() > MAX_DESCRIPTION_BYTES {
            return Err(DescriptionError::TooLong(json.len()));
        }
        let description: Self = serde_json::from_slice(json)?;
        description.check()?;
        Ok(description)
    }

    /// The rendition of this id.
    pub fn rendition(&self, id: u16) -> Option<&Rendition> {
        self.renditions.iter().find(|rendition| rendition.id == id)
    }

    fn check(&self) -> Result<(), DescriptionError> {
        if !check_name(&self.name) {
            return Err(DescriptionError::Name(self.name.clone()));
        }
        let part = self.part_target_us.unwrap_or(self.target_duration_us);
        if part == 0 || part > self.target_duration_us || self.target_duration_us > MAX_TARGET_US {
            return Err(DescriptionError::Duration);
        }
        let count = self.renditions.len();
        if !(1..=MAX_RENDITIONS).contains(&count) {
            return Err(DescriptionError::Renditions(count));
        }
        for (index, rendition) in self.renditions.iter().enumerate() {
            let id = rendition.id;
            if id == 0 || self.renditions[..index].iter().any(|earlier| earlier.id == id) {
                return Err(DescriptionError::Id(id));
            }
            let codec = |byte: u8| byte.is_ascii_alphanumeric() || b".,-_".contains(&byte);
            check_text(&rendition.codecs, MAX_CODECS_BYTES, codec)?;
            let language = rendition.audio.as_ref().map_or("", |audio| &audio.language);
            check_text(language, MAX_LANGUAGE_BYTES, |byte| byte.is_ascii_alphanumeric() || byte == b'-')?;
        }
        Ok(())
    }
}

fn check_text(text: &str, max: usize, allowed: impl Fn(u8) -> bool) -> Result<(), DescriptionError> {
    match text.len() <= max && text.bytes().all(allowed) {
        true => Ok(()),
        false => Err(DescriptionError::Text(text.to_owned())),
    }
}

/// Whether a text can be the name of a stream: 1 to 255 letters, digits and `.`, `_`, `-`, in parts that `/` separates. Such a
/// name is safe in a URL, in a playlist and as a path below a folder.
///
/// ```
/// use rblive::content::check_name;
/// assert!(check_name("live/camera-1"));
/// assert!(["", "/a", "a/", "a//b", "a/../b", "a b", "ä"].iter().all(|name| !check_name(name)));
/// ```
pub fn check_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= MAX_NAME_BYTES
        && name.split('/').all(|part| part.bytes().all(plain) && part.bytes().any(|byte| byte != b'.'))
}

#[cfg(test)]
mod tests {
    use rblive_media::rendition::Audio;

    use super::*;

    fn description() -> Description {
        Description {
            name: "camera".into(),
            container: Container::Ts,
            target_duration_us: 2_000_000,
            part_target_us: None,
            renditions: vec![Rendition {
                id: 1,
                codecs: "avc1.64001f,mp4a.40.2".into(),
                bandwidth: 0,
                video: None,
                audio: Some(Audio { sample_rate: 48_000, channels: 2, language: "en-CA".into() }),
            }],
        }
    }

    #[test]
    fn what_a_playlist_cannot_have_is_refused() {
        let refused = |change: fn(&mut Description)| {
            let mut changed = description();
            change(&mut changed);
            let json = serde_json::to_vec(&changed).unwrap();
            assert!(changed.to_json().is_err());
            Description::from_json(&json).unwrap_err().to_string()
        };
        assert!(Description::from_json(&description().to_json().unwrap()).is_ok());
        assert!(refused(|d| d.name = "a\n#EXT".into()).contains(r"a\n#EXT"));
        assert!(refused(|d| d.renditions.clear()).contains("has 0"));
        assert!(refused(|d| d.renditions[0].id = 0).contains("0 or occurs twice"));
        assert!(refused(|d| d.renditions.push(d.renditions[0].clone())).contains("id 1"));
        assert!(refused(|d| d.renditions[0].codecs = "avc1\",X=\"".into()).contains("codecs"));
        assert!(refused(|d| d.target_duration_us = 0).contains("zero"));
        assert!(refused(|d| d.part_target_us = Some(3_000_000)).contains("longer"));
        assert!(refused(|d| d.target_duration_us = MAX_TARGET_US + 1).contains("over an hour"));
        let long = vec![b' '; MAX_DESCRIPTION_BYTES + 1];
        assert!(matches!(Description::from_json(&long), Err(DescriptionError::TooLong(_))));
    }
}
