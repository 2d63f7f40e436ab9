//! A log in segment files, addressed by byte position.
//!
//! A log is an endless sequence of bytes made by one writer. [`Log::append_at`] adds a batch at a position; positions that a writer
//! leaves out are a *hole*, which readers are told of and which is never closed. The log lies in *segments*: files of a limited size,
//! of which all but the last are *sealed* and never change. [`Retention`] removes whole segments from the front.
//!
//! ```text
//!   first                                                   durable        end
//!   ──┬──────────────────┬──────────────────┬──────────────────┬────────────┬──▶ positions
//!     │ sealed segment   │ sealed segment   │ last segment     │ may be lost│
//!     │ …0000.seg        │ …8192.seg        │ …16384.seg       │ in a crash │
//!   ──┴──────────────────┴──────────────────┴──────────────────┴────────────┴──
//!     ▲ retention                             ▲ readers, anywhere           ▲ the writer
//! ```
//!
//! ```
//! use seglog::{Log, Options, Read};
//!
//! let dir = tempfile::tempdir()?;
//! let mut log = Log::open(dir.path(), Options::default())?;
//! log.append(b"hello ")?;
//! log.append(b"world")?;
//! log.append_at(20, b"later")?;
//!
//! let mut reader = log.reader();
//! let Read::Batch(batch) = reader.read(8)? else { panic!("data is there") };
//! assert_eq!(&batch.bytes[..], b"rld");
//! let Read::Hole(hole) = reader.read(11)? else { panic!("nothing was written there") };
//! assert_eq!(hole.range, 11..20);
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//! - **Order.** After a crash the log is a prefix of the appended bytes. Nothing below [`Log::durable`] is missing from it.
//! - **Checksums.** Readers return only bytes whose checksum they have verified (crc32c). Damaged data is a hole with the cause
//!   [`HoleCause::Damaged`], not an error.
//! - **Failed writes.** A full disk or an I/O error leaves the log as it was ([`AppendError::NotWritten`]), and the next append tries
//!   again.
//! - **Failed syncs.** After a failed `fdatasync` the kernel forgets the pages that it did not write, and the next one
//!   succeeds without it. The log does not believe that one: it writes the last segment anew to another file before it
//!   promises anything again.
//!
//! # Files
//! The directory belongs to the log. Each segment is a file there, named by its first position. The writer locks
//! (`flock`) the file `lock`, so there is one writer in all processes. Other processes read with [`Reader::open`]. Do
//! not change or cut files while
//! the log is open, least of all with [`ReadMode::Map`]. `docs/SEGLOG.md` and [`format`](mod@format)
//! describe the bytes, and the command `seglog verify DIR` checks them.
//!
//! # Writes by `pwritev`, reads by `pread` or from mapped memory
//! A batch is one `pwritev` of headers, payload and padding. Writing to mapped files would save that call, and would turn a full disk
//! into the death of the process by `SIGBUS`. Sealed segments can be read mapped ([`ReadMode::Map`]).
#![deny(unsafe_code)]

mod append;
mod attach;
mod clock;
mod error;
pub mod format;
mod log;
mod mark;
mod options;
mod reader;
mod recover;
mod scan;
mod segments;
mod shared;
pub mod storage;
mod ticker;
mod writer;

pub use clock::AgeClock;
pub use error::{AppendError, FileError, OpenError, ReadError, SyncError, WaitError};
pub use log::Log;
pub use options::{Options, ReadMode, Retention, SyncPolicy};
pub use reader::{Batch, Follow, Hole, HoleCause, Read, ReadInto, Reader};
pub use recover::Recovery;
pub use shared::Stats;
