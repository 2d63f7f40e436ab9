//! A node that takes streams and sees the chunks of one, `camera`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rblive::config::StreamSettings;
use rblive::content::{Description, Flags, Header, Kind};
use rblive::{Config, RsManager};
use rblive_ingest::{Ingest, IngestAddresses, IngestSettings};

pub const KEY: &str = "a-secret";
const LIMIT: Duration = Duration::from_secs(60);
/// How long a stream without requests goes on. The requests of a test follow each other sooner, also where the machine has other work, and a test
/// that waits for the end waits so long.
const IDLE_MS: u64 = 5000;

type Chunks = Arc<Mutex<Vec<(Header, Vec<u8>)>>>;

pub struct Node {
    pub ingest: Ingest,
    pub manager: RsManager,
    pub chunks: Chunks,
    pub folder: tempfile::TempDir,
}

impl Node {
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    /// A node whose settings a test changes.
    pub fn with(change: impl FnOnce(&mut IngestSettings)) -> Self {
        Self::with_chunks(1 << 20, change)
    }

    /// A node with chunks of this size, whose buffers do not grow.
    pub fn with_chunks(chunk_bytes: u64, change: impl FnOnce(&mut IngestSettings)) -> Self {
        let chunks = 1024.min((16 << 20) / chunk_bytes);
        let max_buffer_bytes = (chunks * (chunk_bytes + 32)).next_power_of_two();
        let streams = StreamSettings { chunk_bytes, chunks, max_buffer_bytes, ..StreamSettings::default() };
        Self::with_streams(streams, change)
    }

    /// A node with these buffers.
    pub fn with_streams(streams: StreamSettings, change: impl FnOnce(&mut IngestSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, private_key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&private_key, made.signing_key.serialize_pem()).unwrap();
        let node =
            rblive::Rule { streams: "*".to_owned(), nodes: vec![Config::default().nodes[0].name.clone()] };
        let config = Config { rules: vec![node], streams, ..Config::default() };
        let manager = RsManager::new(config).unwrap();
        let chunks = Chunks::default();
        let (seen, cameras) = (chunks.clone(), Mutex::new(HashSet::new()));
        manager.inbound_callback(move |chunk| {
            let (header, payload) = chunk.content().expect("a chunk has a header");
            let payload = payload.to_vec().expect("the chunk is there");
            if header.kind == Kind::Description
                && Description::from_json(&payload).is_ok_and(|description| description.name == "camera")
            {
                cameras.lock().unwrap().insert(chunk.stream());
            }
            if cameras.lock().unwrap().contains(&chunk.stream()) {
                seen.lock().unwrap().push((header, payload));
            }
        });
        let any = || "127.0.0.1:0".to_owned();
        let mut settings = IngestSettings {
            rtmp: any(),
            rtmps: any(),
            http: any(),
            https: any(),
            certificate,
            private_key,
            keys: [("*".to_owned(), KEY.to_owned())].into(),
            segment_ms: 1000,
            linger_ms: 200,
            ..IngestSettings::default()
        };
        settings.limits.idle_ms = IDLE_MS;
        change(&mut settings);
        let ingest = Ingest::start(manager.clone(), settings).unwrap();
        Self { ingest, manager, chunks, folder }
    }

    pub fn addresses(&self) -> IngestAddresses {
        self.ingest.addresses()
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, mut so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed() < LIMIT, "{what}: {:?}, {:?}", self.ingest.counters(), self.media());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn wait_for_no_stream(&self) {
        self.wait("the streams end", || self.manager.outbound().is_empty());
    }

    pub fn wait_for_end(&self) {
        self.wait("the stream ends", || {
            self.chunks.lock().unwrap().iter().any(|(header, _)| header.kind == Kind::End)
        });
    }

    /// Ends the streams behind so many frames, also those that wait for the return of a publisher.
    pub fn end_behind_frames(&self, count: usize) {
        self.wait_for_frames(count);
        for stream in self.manager.outbound() {
            // A stream whose publisher is gone may end by itself meanwhile.
            let _ = self.manager.destroy_stream(stream.id);
        }
        self.wait("everything was received", || self.manager.inbound().is_empty());
    }

    /// Waits until frames came, `count` of them.
    pub fn wait_for_frames(&self, count: usize) {
        self.wait("the frames arrive", || self.frames().len() >= count);
    }

    /// The headers of media, in order.
    pub fn media(&self) -> Vec<Header> {
        let chunks = self.chunks.lock().unwrap();
        chunks.iter().filter(|(header, _)| header.kind == Kind::Media).map(|(header, _)| *header).collect()
    }

    /// The initialisation segments, without repetitions.
    pub fn inits(&self) -> Vec<Vec<u8>> {
        let chunks = self.chunks.lock().unwrap();
        let of = chunks.iter().filter(|(header, _)| header.kind == Kind::Init);
        let mut inits: Vec<Vec<u8>> = of.map(|(_, payload)| payload.clone()).collect();
        inits.dedup();
        inits
    }

    /// The numbers of the frames that came, in order: see [`crate::material`].
    pub fn frames(&self) -> Vec<u8> {
        let chunks = self.chunks.lock().unwrap();
        let media = chunks.iter().filter(|(header, _)| header.kind == Kind::Media);
        media.flat_map(|(_, payload)| crate::material::frames_of(payload)).collect()
    }

    /// The numbers of the frames with which a discontinuity begins.
    pub fn discontinuities(&self) -> Vec<u8> {
        let chunks = self.chunks.lock().unwrap();
        let media = chunks
            .iter()
            .filter(|(header, _)| header.kind == Kind::Media && header.flags.contains(Flags::DISCONTINUITY));
        media.map(|(_, payload)| crate::material::frames_of(payload)[0]).collect()
    }

    /// The timeline goes on without holes, and so do the numbers of segments.
    pub fn assert_in_order(&self) {
        for pair in self.media().windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            let end = before.start_us + u64::from(before.duration_us);
            assert!(after.start_us.abs_diff(end) < 1000, "{before:?} and then {after:?}");
            let next = if after.flags.contains(Flags::FIRST_PART) {
                (before.sequence + 1, 0)
            } else {
                (before.sequence, before.part + 1)
            };
            assert_eq!((after.sequence, after.part), next, "{before:?} and then {after:?}");
        }
    }
}
