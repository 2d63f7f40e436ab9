//! Live streams as files: segments and playlists in a folder.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use rblive_media::segmenter::Part;

use crate::failure::Result;

/// Segments in a playlist, and on disk: some more, for viewers that have an old playlist.
const LISTED: u64 = 5;
const KEPT: u64 = 10;

/// A folder with a folder for each stream.
pub struct Files {
    folder: PathBuf,
    segment_s: u64,
}

impl Files {
    pub fn new(folder: PathBuf, segment_s: u64) -> Self {
        Self { folder, segment_s }
    }

    /// Writes a segment, then the playlist that lists it.
    pub fn write(&self, stream: usize, part: &Part) -> Result<()> {
        let folder = self.folder.join(format!("s{stream}"));
        fs::create_dir_all(&folder)?;
        let number = part.sequence;
        if number == 0 {
            fs::write(folder.join("init.mp4"), &part.init)?;
        }
        fs::write(folder.join(format!("{number}.m4s")), part.to_vec())?;
        let first = (number + 1).saturating_sub(LISTED);
        let segment_s = self.segment_s;
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:{segment_s}\n#EXT-X-MEDIA-SEQUENCE:{first}\n\
             #EXT-X-MAP:URI=\"init.mp4\"\n"
        );
        for number in first..=number {
            let _ = write!(text, "#EXTINF:{segment_s}.000000,\n{number}.m4s\n");
        }
        fs::write(folder.join("new"), text)?;
        fs::rename(folder.join("new"), folder.join("media.m3u8"))?;
        if let Some(old) = number.checked_sub(KEPT) {
            fs::remove_file(folder.join(format!("{old}.m4s")))?;
        }
        Ok(())
    }
}
