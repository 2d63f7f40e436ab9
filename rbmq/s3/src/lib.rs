//! An object store with the interface of Amazon S3 below the disk of an RBMQ broker's kept topics.
//!
//! ```text
//!   disk ──▶ batches ──▶ objects, named by log and position ──▶ subscribers that begin before the disk
//!            PUT, If-None-Match: *                              GET, one object after the other
//! ```
//!
//! An object is never changed. "If-None-Match: *" is the fence: of two brokers that write the same log, one makes the next object, and the
//! other one learns that. The names are the index, so a broker remembers nothing but the end, and asks for that when it starts.
//!
//! Requests go over `ureq`, a client of HTTP/1.1 that blocks: the threads of an archive may wait, and nothing else of this process needs the
//! futures and the hundred packages of the software development kit of Amazon.
#![forbid(unsafe_code)]

mod client;
mod error;
mod keys;
mod log;
mod object;
mod objects;
mod page;
mod sign;

use std::sync::Arc;

use locks::Mutex;
use rbmq_broker::{Archive, ArchiveError, ArchiveLog, ArchivedLog, S3Settings, TopicName};
use rocketbufs::Epoch;

use self::client::{Client, random};
pub use self::error::S3Error;
use self::log::{Bucket, S3Log};
use self::objects::Objects;

/// The folder with the names of the logs that the topics of clusters have.
const NAMES: &str = ".names";

/// The folder with the notes for the ends of logs whose last object has none.
const NOTES: &str = ".notes";

/// The object that shows that a bucket refuses a second one of the same name.
const PROBE: &str = ".only-new";

/// The bucket of a store as an archive.
///
/// ```no_run
/// use std::sync::Arc;
/// use rbmq_broker::{ArchiveKind, Broker, BrokerConfig, Parts, Rule};
/// use rbmq_s3::S3Archive;
///
/// let mut rule = Rule::new("plant/#".parse()?);
/// (rule.keep, rule.archive) = (true, Some(ArchiveKind::S3));
/// let mut config = BrokerConfig::default();
/// config.broker.keep_dir = "/var/lib/rbmq".into();
/// config.broker.topics = vec![rule].into();
/// (config.s3.endpoint, config.s3.bucket) = ("http://10.0.0.7:9000".into(), "history".into());
/// let archive = S3Archive::new(&config.s3)?;
/// let parts = Parts { archive: Some(Arc::new(archive)), ..Parts::default() };
/// let broker = Broker::start_with(config, parts)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct S3Archive {
    bucket: Arc<Bucket>,
    prefix: String,
    is_probed: Mutex<bool>,
}

impl S3Archive {
    /// The bucket of a configuration. The store is not asked yet.
    ///
    /// # Errors
    /// [`S3Error`].
    pub fn new(settings: &S3Settings) -> Result<Self, S3Error> {
        let (client, writer) = (Client::new(settings)?, random()?);
        let bucket = Arc::new(Bucket { client, objects: Objects::new(settings.batch_bytes), writer });
        Ok(Self { bucket, prefix: settings.prefix.clone(), is_probed: Mutex::new(false) })
    }

    /// Makes sure, once, that the bucket refuses a second object of the same name. Others would take the bytes of two brokers for one log.
    fn probe(&self) -> Result<(), ArchiveError> {
        let mut is_probed = self.is_probed.lock();
        if *is_probed {
            return Ok(());
        }
        let key = format!("{}/{PROBE}", self.prefix);
        // The first time, the object is made.
        if self.bucket.client.put_new(&key, b"")? && self.bucket.client.put_new(&key, b"")? {
            return Err(ArchiveError::Refused(
                "the store overwrites objects in spite of \"If-None-Match: *\", so two brokers could write one log: use a store, or a \
                 version of it, with conditional writes"
                    .into(),
            ));
        }
        *is_probed = true;
        Ok(())
    }
}

impl Archive for S3Archive {
    fn open(
        &self,
        log: &ArchivedLog,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        self.probe()?;
        let folder = format!("{}/{}/{:032x}/", self.prefix, log.letters(), log.epoch.0);
        let notes = format!("{}/{NOTES}/{:032x}/", self.prefix, log.epoch.0);
        Ok(Arc::new(S3Log::open(&self.bucket, [folder, notes], log, is_stopped)?))
    }

    /// An object that is never changed has the name. Who makes it first decides.
    fn name_of(&self, cluster: &str, topic: &TopicName, new: Epoch) -> Result<Epoch, ArchiveError> {
        self.probe()?;
        let key = format!("{}/{NAMES}/{}/{}", self.prefix, plain(cluster), plain(topic.as_str()));
        let client = &self.bucket.client;
        let of = |epoch: Epoch| format!("{:032x} {topic}\n", epoch.0);
        if client.put_new(&key, of(new).as_bytes())? {
            return Ok(new);
        }
        let found = client
            .get(&key)?
            .ok_or_else(|| ArchiveError::Down(format!("the object {key} was just removed")))?;
        let text = str::from_utf8(&found).unwrap_or_default();
        let name = text.split_once(' ').and_then(|(name, _)| u128::from_str_radix(name, 16).ok()).map(Epoch);
        name.filter(|name| of(*name) == text).ok_or_else(|| {
            ArchiveError::Refused(format!("the object {key} does not say which log the topic '{topic}' has"))
        })
    }
}

/// The most letters of a name. A store takes 1,024 for the whole name of an object.
const MAX_LETTERS: usize = 300;

/// A text in letters that names of objects may have. A long text is cut, and gets a checksum: the object says whose it is.
fn plain(text: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!(".{other:02x}"),
    };
    let mut name: String = text.bytes().map(letter).collect();
    if name.len() > MAX_LETTERS {
        name.truncate(MAX_LETTERS);
        name.push_str(&format!(".{:08x}", crc32c::crc32c(text.as_bytes())));
    }
    name
}
