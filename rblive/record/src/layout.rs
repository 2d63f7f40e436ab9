//! Names of folders and files. A place consists of checked parts only, so no text of a request becomes a path.

use std::path::{Path, PathBuf};

use rblive::content::check_name;
use rblive_media::hls::decimal;
use rblive_media::rendition::Container;

/// The file with the description of a recording. It is written first and removed first: a folder without it is no recording.
pub const ABOUT: &str = "about.json";
/// The playlist of all renditions.
pub const INDEX: &str = "index.m3u8";
/// The playlist of a rendition.
pub const PLAYLIST: &str = "media.m3u8";
/// The segment that is being written.
pub const PART: &str = ".part";

/// A file of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// The playlist of all renditions.
    Index,
    /// The playlist of a rendition.
    Playlist(u16),
    /// An initialisation segment of a rendition.
    Init(u16, u32),
    /// A segment of a rendition.
    Segment(u16, u64, Container),
}

/// The place of a file: `camera/20261125T214822Z/1/0.m4s`.
///
/// ```
/// use rblive_record::{File, Place};
/// let place = Place::parse("stage/main/20261125T214822Z/1/media.m3u8").unwrap();
/// assert_eq!((place.stream.as_str(), place.file), ("stage/main", File::Playlist(1)));
/// assert!(Place::parse("../20261125T214822Z/index.m3u8").is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The name of the stream.
    pub stream: String,
    /// When the recording began, which is its name.
    pub begin: String,
    /// The file.
    pub file: File,
}

impl Place {
    /// Reads `STREAM/BEGIN/index.m3u8`, or `STREAM/BEGIN/RENDITION/FILE`.
    pub fn parse(path: &str) -> Option<Self> {
        let (rest, file) = path.rsplit_once('/')?;
        let (recording, file) = if file == INDEX {
            (rest, File::Index)
        } else {
            let (recording, rendition) = rest.rsplit_once('/')?;
            (recording, of_rendition(decimal(rendition)?, file)?)
        };
        let (stream, begin) = recording.rsplit_once('/')?;
        let known = check_name(stream) && is_begin(begin);
        known.then(|| Self { stream: stream.to_owned(), begin: begin.to_owned(), file })
    }

    /// The path below the folder of a rule.
    pub(crate) fn path(&self) -> PathBuf {
        let recording = Path::new(&folder_of(&self.stream)).join(&self.begin);
        match self.file {
            File::Index => recording.join(INDEX),
            File::Playlist(id) => recording.join(id.to_string()).join(PLAYLIST),
            File::Init(id, number) => recording.join(id.to_string()).join(init(number)),
            File::Segment(id, number, container) => {
                recording.join(id.to_string()).join(format!("{number}.{}", container.extension()))
            }
        }
    }
}

fn of_rendition(id: u16, file: &str) -> Option<File> {
    if file == PLAYLIST {
        return Some(File::Playlist(id));
    }
    if let Some(number) = file.strip_prefix("init-").and_then(|rest| rest.strip_suffix(".mp4")) {
        return Some(File::Init(id, decimal(number)?));
    }
    [Container::Cmaf, Container::Ts].into_iter().find_map(|container| {
        let number = file.strip_suffix(container.extension())?.strip_suffix('.')?;
        Some(File::Segment(id, decimal(number)?, container))
    })
}

/// The file of an initialisation segment.
pub fn init(number: u32) -> String {
    format!("init-{number}.mp4")
}

/// The folder of a stream. `+` stands for `/`: no name has a `+`, so each name has its own folder.
pub fn folder_of(stream: &str) -> String {
    stream.replace('/', "+")
}

/// The stream of a folder.
pub fn stream_of(folder: &str) -> Option<String> {
    let stream = folder.replace('+', "/");
    (!folder.contains('/') && check_name(&stream)).then_some(stream)
}

/// Whether a text names a recording: `20261125T214822Z`, or `20261125T214822Z-002` for another one of the same second.
/// Names sort by age.
pub fn is_begin(text: &str) -> bool {
    let (stamp, count) = text.split_at_checked(16).unwrap_or((text, ""));
    let shape = stamp.bytes().enumerate().all(|(index, byte)| match index {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    });
    let counted = || {
        let digits = count
            .strip_prefix('-')
            .filter(|digits| digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse::<u8>().ok()).is_some_and(|number| number >= 2)
    };
    shape && stamp.len() == 16 && (count.is_empty() || counted())
}

/// The names in a folder. Empty if it cannot be read.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_made_of_checked_parts() {
        for (path, below) in [
            ("a/20261125T214822Z/index.m3u8", "a/20261125T214822Z/index.m3u8"),
            ("a/1/20261125T214822Z-002/1/media.m3u8", "a+1/20261125T214822Z-002/1/media.m3u8"),
            ("a/20261125T214822Z/3/init-77.mp4", "a/20261125T214822Z/3/init-77.mp4"),
            ("a/20261125T214822Z/3/5.ts", "a/20261125T214822Z/3/5.ts"),
        ] {
            let place = Place::parse(path).unwrap();
            assert_eq!(place.path(), Path::new(below));
            assert_eq!(stream_of(&folder_of(&place.stream)), Some(place.stream));
        }
        for bad in [
            "",
            "/",
            "index.m3u8",
            "20261125T214822Z/index.m3u8",
            "../20261125T214822Z/index.m3u8",
            "a/../20261125T214822Z/index.m3u8",
            "a/%2e%2e/20261125T214822Z/index.m3u8",
            "a/20261125T214822Z/../index.m3u8",
            "a/20261125T214822Z/1/../../index.m3u8",
            "a/20261125T214822Z/about.json",
            "a/20261125T214822Z/1/.part",
            "a/20261125T214822Z/1/05.m4s",
            "a/20261125T214822Z/1/5.m4s/",
            "a/20261125T214822Z-001/index.m3u8",
            "a/20261125T214822Z-2/index.m3u8",
            "a/20261125T214822Z-+02/index.m3u8",
            "a/20261125T214822/index.m3u8",
            "a+b/20261125T214822Z/index.m3u8",
            "a/20261125T2148é/index.m3u8",
            "a\0/20261125T214822Z/index.m3u8",
        ] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
        assert_eq!(stream_of("a++b"), None);
        assert_eq!(stream_of(".."), None);
    }
}
