//! Files that encoders upload, and send again.
//!
//! An encoder that gets no answer sends its file again. The part that was written before is recognised by its check sums, and is
//! not written twice:
//!
//! ```text
//!   first attempt   aaaabbbbcc|  breaks off          aaaabbbbccccdd|  complete; the answer is lost
//!   second attempt  aaaabbbbccccdd                   aaaabbbbccccdd
//!   taken           __________ccdd                   ______________
//! ```
//!
//! Other content under the same name is a new file.

use bytes::{Bytes, BytesMut};

use crate::registry::{Gone, Publisher};
use crate::stream::{Stream, StreamFailure};

/// The bytes of a block, which has a check sum of its own.
const BLOCK: usize = 64 << 10;
/// The longest playlist that is accepted.
pub(crate) const MAX_PLAYLIST: usize = 1 << 20;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Playlist,
    Ts,
    Mp4,
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadFailure {
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    #[error("the body is no MPEG transport stream, MP4 or playlist")]
    Format,
    #[error("the playlist has more than {MAX_PLAYLIST} bytes")]
    Playlist,
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// The received bytes of a file: their number, and the check sums of their blocks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    bytes: usize,
    blocks: Vec<u32>,
    /// The sum of the unfinished block.
    open: u32,
}

impl Content {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.bytes % BLOCK));
            self.open = crc32c::crc32c_append(self.open, now);
            self.bytes += now.len();
            if self.bytes.is_multiple_of(BLOCK) {
                self.blocks.push(std::mem::take(&mut self.open));
            }
            bytes = later;
        }
    }
}

/// The last file of a publisher.
#[derive(Debug)]
pub(crate) struct LastFile {
    name: String,
    content: Content,
    format: Format,
    complete: bool,
}

/// An upload that equals the publisher's last file so far.
struct Repetition {
    before: LastFile,
    seen: Content,
    held: BytesMut,
}

/// A file that is being uploaded.
pub(crate) struct Upload<'a> {
    publisher: &'a Publisher,
    name: String,
    repetition: Option<Repetition>,
    content: Content,
    format: Option<Format>,
    /// Bytes that are not yet written: the beginning of a file, or a file that is written as a whole.
    kept: BytesMut,
}

impl<'a> Upload<'a> {
    /// Begins an upload. `last` is the publisher's last file, which this one may repeat. A file without a name repeats none.
    pub(crate) fn begin(
        publisher: &'a Publisher,
        name: &str,
        last: Option<LastFile>,
    ) -> Result<Self, UploadFailure> {
        let (same, other) = match last {
            Some(last) if !name.is_empty() && last.name == name => (Some(last), None),
            last => (None, last),
        };
        let repetition =
            same.map(|before| Repetition { before, seen: Content::default(), held: BytesMut::new() });
        let (content, kept) = (Content::default(), BytesMut::new());
        let upload = Self { publisher, name: name.to_owned(), repetition, content, format: None, kept };
        if let Some(other) = other {
            upload.give_up(&other)?;
        }
        Ok(upload)
    }

    /// Adds the next bytes.
    pub(crate) fn push(&mut self, bytes: &Bytes) -> Result<(), UploadFailure> {
        let Some(repetition) = &mut self.repetition else { return self.take(bytes) };
        let missing = repetition.before.content.bytes - repetition.seen.bytes;
        let (known, new) = bytes.split_at(bytes.len().min(missing));
        repetition.seen.add(known);
        let (seen, before) = (&repetition.seen, &repetition.before);
        let same = match seen.bytes == before.content.bytes {
            true => *seen == before.content,
            false => before.content.blocks.starts_with(&seen.blocks),
        };
        if same && new.is_empty() {
            repetition.held.extend_from_slice(known);
            return Ok(());
        }
        if same && before.format == Format::Ts {
            let Some(repetition) = self.repetition.take() else { return Ok(()) };
            (self.content, self.format) = (repetition.before.content, Some(Format::Ts));
            return self.take(new);
        }
        self.differs()?;
        self.take(bytes)
    }

    /// Ends the file, which is complete.
    pub(crate) fn end(&mut self) -> Result<(), UploadFailure> {
        match &self.repetition {
            Some(same) if same.seen == same.before.content => {
                if same.before.complete {
                    tracing::debug!(file = self.name, "a file was sent again");
                    return Ok(());
                }
                self.format = Some(same.before.format);
            }
            Some(_) => self.differs()?,
            None => {}
        }
        match self.format {
            Some(Format::Playlist) => Ok(()),
            Some(Format::Ts) => self.write(Stream::end_of_ts),
            Some(Format::Mp4) => {
                let file = self.kept.split().freeze();
                self.write(|stream| stream.push_mp4(&file, &self.name))
            }
            None => Err(UploadFailure::Format),
        }
    }

    /// The file that the next upload is compared with. `None` after a failure of the stream: a repetition is then written completely.
    pub(crate) fn last(self, complete: bool, stream_failed: bool) -> Option<LastFile> {
        if stream_failed {
            return None;
        }
        if let Some(repetition) = self.repetition {
            let complete = complete || repetition.before.complete;
            return Some(LastFile { complete, ..repetition.before });
        }
        let format = self.format.filter(|format| complete || *format == Format::Ts)?;
        Some(LastFile { name: self.name, content: self.content, format, complete })
    }

    /// Handles a file that has the name of the last one, but other content.
    fn differs(&mut self) -> Result<(), UploadFailure> {
        let Some(repetition) = self.repetition.take() else { return Ok(()) };
        self.give_up(&repetition.before)?;
        self.take(&repetition.held)
    }

    /// Handles an incomplete file whose rest will not come.
    fn give_up(&self, file: &LastFile) -> Result<(), UploadFailure> {
        if file.complete {
            return Ok(());
        }
        tracing::warn!(file = file.name, "a file broke off and was not sent again; its rest leaves a hole");
        self.write(Stream::interrupt)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), UploadFailure> {
        self.content.add(bytes);
        if self.format == Some(Format::Ts) {
            return self.write(|stream| stream.push_ts(bytes));
        }
        self.kept.extend_from_slice(bytes);
        if self.format.is_none() && self.kept.len() >= 8 {
            self.format = Some(format(&self.kept).ok_or(UploadFailure::Format)?);
            if self.format == Some(Format::Ts) {
                let begin = self.kept.split();
                return self.write(|stream| stream.push_ts(&begin));
            }
        }
        if self.format == Some(Format::Playlist) && self.kept.len() > MAX_PLAYLIST {
            return Err(UploadFailure::Playlist);
        }
        Ok(())
    }

    fn write(
        &self,
        write: impl FnOnce(&mut Stream) -> Result<(), StreamFailure>,
    ) -> Result<(), UploadFailure> {
        Ok(self.publisher.with(write)??)
    }
}

fn format(head: &[u8]) -> Option<Format> {
    match head {
        [0x47, ..] => Some(Format::Ts),
        [b'#', b'E', b'X', b'T', ..] => Some(Format::Playlist),
        [_, _, _, _, kind @ ..]
            if [b"ftyp", b"styp", b"moov", b"moof", b"sidx", b"free", b"prft"]
                .iter()
                .any(|known| kind.starts_with(&known[..])) =>
        {
            Some(Format::Mp4)
        }
        _ => None,
    }
}
