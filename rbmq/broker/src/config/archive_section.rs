//! The sections of archives: what all of them have is declared once.

use std::time::Duration;

/// How an archive is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArchiveOptions {
    /// The most bytes of a batch, unless a delivery is larger.
    pub(crate) batch_bytes: usize,
    /// How long bytes wait for more.
    pub(crate) batch_age: Duration,
    /// How long a subscriber waits for an archive that does not answer.
    pub(crate) replay_wait: Duration,
    /// The most topics with an archive.
    pub(crate) max_topics: usize,
    /// The section with these settings, to be shown to people.
    pub(crate) section: &'static str,
}

/// Declares the section of an archive: its own settings, and those of each archive. `batch_bytes` is the largest batch, with its default.
macro_rules! archive_section {
    (
        $(#[doc = $about:literal])+
        $section:literal $name:ident { $($own:tt)+ }
        $(#[doc = $batch:literal])+
        batch_bytes = $default:expr, range [$($range:tt)+];
    ) => {
        ::settings::section! {
            $(#[doc = $about])+
            $section $name {
                $($own)+
                /// Largest number of topics in the archive. Default 64, at least 1. Each may cost two threads and about 1 MiB. Further topics
                /// are on disk only.
                max_topics: usize = 64, range [1 to 10_000];
                $(#[doc = $batch])+
                batch_bytes: u64 = $default, "bytes", range [$($range)+];
                /// Longest time for which bytes on the disk wait for more before they are sent, in milliseconds. Default 1,000, at least 10.
                /// Too small: a record or an object for very few bytes.
                batch_ms: u64 = 1_000, "ms", range [10 to 3_600_000];
                /// How long a call waits for the archive, in milliseconds. Default 5,000, at least 100. A broker that stops waits for at most
                /// one call. Too small: a large batch does not arrive in time on a slow line.
                timeout_ms: u64 = 5_000, "ms", range [100 to 600_000];
                /// How long a subscriber waits for an archive that does not answer, in milliseconds. Default 60,000. Data that only the
                /// archive has is reported as lost afterwards.
                replay_wait_ms: u64 = 60_000, "ms", range [at least 0];
            }
        }

        impl $name {
            /// `timeout_ms` as a duration.
            pub fn timeout(&self) -> ::std::time::Duration {
                ::std::time::Duration::from_millis(self.timeout_ms)
            }

            /// The settings that each archive has.
            pub(crate) fn options(&self) -> $crate::config::ArchiveOptions {
                let millis = ::std::time::Duration::from_millis;
                $crate::config::ArchiveOptions {
                    batch_bytes: usize::try_from(self.batch_bytes).unwrap_or(usize::MAX),
                    batch_age: millis(self.batch_ms),
                    replay_wait: millis(self.replay_wait_ms),
                    max_topics: self.max_topics,
                    section: $section,
                }
            }
        }
    };
}

pub(super) use archive_section;
