//! A node that writes streams and keeps them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rblive::content::{Container, Description, Flags, Header, Kind, Rendition, Video};
use rblive::{Config, RsId, RsManager, Rule};
use rblive_record::{About, RecordCounters, RecordRule, Recorder, Store};

/// How long a test waits for something that must come.
pub const WAIT: Duration = Duration::from_secs(60);

pub struct Lab {
    pub rs: RsManager,
    pub recorder: Arc<Recorder>,
}

/// A rule for all streams.
pub fn rule(folder: &Path) -> RecordRule {
    RecordRule { folder: folder.to_owned(), ..RecordRule::default() }
}

impl Lab {
    pub fn new(rule: RecordRule) -> Self {
        let rules = vec![Rule { streams: "*".into(), nodes: vec!["local".into()] }];
        let mut config = Config { rules, ..Config::default() };
        config.streams.chunk_bytes = 64 << 10;
        config.streams.chunks = 8;
        let rs = RsManager::new(config).unwrap();
        let recorder = Arc::new(Recorder::start(vec![rule]).unwrap());
        let (chunks, events) = (recorder.clone(), recorder.clone());
        rs.inbound_callback(move |chunk| chunks.take(&chunk));
        rs.stream_callback(move |id, event| events.event(id, &event));
        Self { rs, recorder }
    }

    /// Ends the node and its recorder. Chunks that wait are written.
    pub fn stop(self) {
        let Self { rs, recorder } = self;
        rs.inbound_callback(drop);
        rs.stream_callback(|_, _| {});
        rs.shutdown(Duration::from_secs(1));
        drop(rs);
        drop(Arc::into_inner(recorder).expect("the callbacks are gone"));
    }

    pub fn store(&self) -> Store {
        self.recorder.store()
    }

    /// Waits until the counters are as they must become.
    pub fn until(&self, what: &str, reached: impl Fn(&RecordCounters) -> bool) {
        let until = Instant::now() + WAIT;
        while !reached(self.recorder.counters()) {
            assert!(Instant::now() < until, "{what}: {:?}", self.recorder.counters());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The segments and gaps of all renditions that the recorder has written.
pub fn kept(counters: &RecordCounters) -> u64 {
    use std::sync::atomic::Ordering::Relaxed;
    counters.segments.load(Relaxed) + counters.gaps.load(Relaxed) + counters.over_limit.load(Relaxed)
}

/// A stream that is written.
pub struct Written<'a> {
    pub lab: &'a Lab,
    pub id: RsId,
    pub name: &'a str,
    pub container: Container,
    pub part_target_us: Option<u64>,
    pub renditions: u16,
    /// A rendition that is not there.
    pub absent: u16,
}

impl<'a> Written<'a> {
    pub fn new(lab: &'a Lab, name: &'a str) -> Self {
        let id = lab.rs.create_stream(name).unwrap();
        let part_target_us = Some(500_000);
        Self { lab, id, name, container: Container::Cmaf, part_target_us, renditions: 1, absent: 0 }
    }

    pub fn write(&self, header: Header, payload: &[u8]) {
        let header = Header { payload_bytes: payload.len() as u32, ..header };
        let mut chunk = self.lab.rs.allocate_chunk(self.id, 64 + payload.len()).unwrap();
        chunk.bytes_mut()[..64].copy_from_slice(&header.encode());
        chunk.bytes_mut()[64..].copy_from_slice(payload);
        self.lab.rs.disseminate_chunk(chunk, 64 + payload.len(), None).unwrap();
    }

    pub fn describe(&self) {
        let video = Some(Video { width: 640, height: 360, frames_per_1000_s: 25_000 });
        let rendition =
            |id| Rendition { id, codecs: "avc1.64001f".into(), bandwidth: 1_000_000, video, audio: None };
        let description = Description {
            name: self.name.into(),
            container: self.container,
            target_duration_us: 1_000_000,
            part_target_us: self.part_target_us,
            renditions: self.present().map(rendition).collect(),
        };
        self.write(Header::new(Kind::Description), &description.to_json().unwrap());
        for rendition in self.present() {
            self.write(Header { rendition, ..Header::new(Kind::Init) }, &[b'i', rendition as u8]);
        }
    }

    fn present(&self) -> impl Iterator<Item = u16> {
        let absent = self.absent;
        (1..=self.renditions).filter(move |id| *id != absent)
    }

    /// Writes a part; each segment has two.
    pub fn part(&self, rendition: u16, sequence: u64, part: u32, bytes: usize) {
        let place = if part == 0 { Flags::FIRST_PART | Flags::INDEPENDENT } else { Flags::LAST_PART };
        let start_us = sequence * 1_000_000 + u64::from(part) * 500_000;
        let header = Header {
            flags: place,
            rendition,
            sequence,
            part,
            duration_us: 500_000,
            start_us,
            produced_ns: 1_760_000_000_000_000_000 + start_us * 1000,
            ..Header::new(Kind::Media)
        };
        self.write(header, &media(rendition, sequence, part, bytes));
    }

    /// Writes segments, and waits for each: the recorder is not overtaken.
    pub fn segments(&self, numbers: std::ops::Range<u64>, bytes: usize) {
        for number in numbers {
            let before = kept(self.lab.recorder.counters());
            self.segment(number, bytes);
            self.lab.until("the segment is kept", |counters| {
                kept(counters) >= before + self.present().count() as u64
            });
        }
    }

    /// Writes a segment of each rendition, in two parts, and does not wait for the recorder.
    pub fn segment(&self, number: u64, bytes: usize) {
        self.describe();
        for rendition in self.present() {
            self.part(rendition, number, 0, bytes / 2);
            self.part(rendition, number, 1, bytes - bytes / 2);
        }
    }

    /// Ends the stream in order.
    pub fn end(self) {
        self.write(Header::new(Kind::End), b"");
        self.lab.rs.destroy_stream(self.id).unwrap();
    }
}

/// The bytes of a part.
pub fn media(rendition: u16, sequence: u64, part: u32, bytes: usize) -> Vec<u8> {
    let seed =
        (sequence * 2 + u64::from(part) + u64::from(rendition) * 1000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..bytes as u64).map(|at| ((at.wrapping_mul(seed | 1)) >> 13) as u8).collect()
}

/// The bytes of a segment.
pub fn segment(rendition: u16, sequence: u64, bytes: usize) -> Vec<u8> {
    let second = media(rendition, sequence, 1, bytes - bytes / 2);
    [media(rendition, sequence, 0, bytes / 2), second].concat()
}

/// The folder of a recording.
pub fn folder(root: &Path, about: &About) -> PathBuf {
    root.join(about.name.replace('/', "+")).join(&about.begin)
}

/// The addresses of a playlist, and its text. Every segment that is no gap is there.
pub fn playlist(rendition: &Path) -> (Vec<String>, String) {
    let text = std::fs::read_to_string(rendition.join("media.m3u8")).unwrap();
    assert!(text.starts_with("#EXTM3U\n") && text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
    let mut gap = false;
    let mut files = Vec::new();
    for line in text.lines() {
        if let Some(map) = line.strip_prefix("#EXT-X-MAP:URI=\"") {
            assert!(rendition.join(map.trim_end_matches('"')).is_file(), "{line}");
        } else if line == "#EXT-X-GAP" {
            gap = true;
        } else if !line.starts_with('#') {
            assert_eq!(rendition.join(line).is_file(), !std::mem::take(&mut gap), "{line} {text}");
            files.push(line.to_owned());
        }
    }
    (files, text)
}
