//! Writes CMAF: initialisation segments, and `moof` boxes with the header of their `mdat`.
//!
//! Video and audio share one rendition: a part is one chunk, one request and one encryption for each viewer, where separate tracks
//! need two of each. hls.js, Safari, ffmpeg and VLC play that.
//!
//! This is own code, because the writers on crates.io keep an index of everything written, so that a live stream grows without a limit,
//! or count decoding times by themselves, so that a stream with holes drifts.

use crate::unit::{AudioCodec, AudioConfig, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec, VideoConfig};

const VIDEO_TRACK: u32 = 1;
const AUDIO_TRACK: u32 = 2;
const SYNC_SAMPLE: u32 = 0x0200_0000;
const NON_SYNC_SAMPLE: u32 = 0x0101_0000;

/// A frame in a `moof`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// In the track's time scale.
    pub(crate) duration: u32,
    pub(crate) bytes: u32,
    pub(crate) key: bool,
    /// Presentation minus decoding time, in the track's time scale.
    pub(crate) offset: i32,
}

/// The frames of a track in a `moof`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) media: Media,
    /// The decoding time of the first sample, in the track's time scale.
    pub(crate) time: u64,
    pub(crate) samples: Vec<Sample>,
}

/// The units of a second in a track.
pub(crate) fn time_scale(config: &TrackConfig) -> u32 {
    match config {
        TrackConfig::Video(_) => TICKS_PER_SECOND as u32,
        TrackConfig::Audio(audio) => audio.sample_rate,
    }
}

/// Writes boxes. A box is as long as what its closure writes.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    fn boxed(&mut self, kind: &[u8; 4], content: impl FnOnce(&mut Self)) {
        let at = self.0.len();
        self.u32(0);
        self.put(kind);
        content(self);
        let size = (self.0.len() - at) as u32;
        self.0[at..at + 4].copy_from_slice(&size.to_be_bytes());
    }

    fn full(&mut self, kind: &[u8; 4], version: u8, flags: u32, content: impl FnOnce(&mut Self)) {
        self.boxed(kind, |w| {
            w.u32(u32::from(version) << 24 | flags);
            content(w);
        });
    }
}

/// The initialisation segment of these tracks: `ftyp` and `moov`.
pub(crate) fn init(tracks: &[TrackConfig]) -> Vec<u8> {
    let mut w = Writer::default();
    w.boxed(b"ftyp", |w| {
        w.put(b"iso6");
        w.u32(0);
        w.put(b"iso6mp41cmfc");
    });
    w.boxed(b"moov", |w| {
        w.full(b"mvhd", 0, 0, |w| {
            w.zeros(8);
            w.u32(1000);
            w.u32(0);
            w.u32(0x0001_0000);
            w.u16(0x0100);
            w.zeros(10);
            matrix(w);
            w.zeros(24);
            w.u32(AUDIO_TRACK + 1);
        });
        for track in tracks {
            trak(w, track);
        }
        w.boxed(b"mvex", |w| {
            for track in tracks {
                w.full(b"trex", 0, 0, |w| {
                    [track_id(track.media()), 1, 0, 0, 0].iter().for_each(|value| w.u32(*value));
                });
            }
        });
    });
    w.0
}

fn track_id(media: Media) -> u32 {
    match media {
        Media::Video => VIDEO_TRACK,
        Media::Audio => AUDIO_TRACK,
    }
}

fn matrix(w: &mut Writer) {
    [0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000].iter().for_each(|value| w.u32(*value));
}

fn trak(w: &mut Writer, track: &TrackConfig) {
    let (volume, size) = match track {
        TrackConfig::Video(video) => (0, [video.width, video.height]),
        TrackConfig::Audio(_) => (0x0100, [0, 0]),
    };
    w.boxed(b"trak", |w| {
        w.full(b"tkhd", 0, 3, |w| {
            w.zeros(8);
            w.u32(track_id(track.media()));
            w.zeros(16);
            // The layer and the alternate group.
            w.zeros(4);
            w.u16(volume);
            w.u16(0);
            matrix(w);
            // In 16.16 fixed point. A record may claim any size.
            size.iter().for_each(|side| w.u32((*side).min(0xFFFF) << 16));
        });
        w.boxed(b"mdia", |w| {
            w.full(b"mdhd", 0, 0, |w| {
                w.zeros(8);
                w.u32(time_scale(track));
                w.u32(0);
                // The language is undetermined.
                w.u16(0x55C4);
                w.u16(0);
            });
            let handler = if track.media() == Media::Video { b"vide" } else { b"soun" };
            w.full(b"hdlr", 0, 0, |w| {
                w.u32(0);
                w.put(handler);
                w.zeros(13);
            });
            w.boxed(b"minf", |w| minf(w, track));
        });
    });
}

fn minf(w: &mut Writer, track: &TrackConfig) {
    match track {
        TrackConfig::Video(_) => w.full(b"vmhd", 0, 1, |w| w.zeros(8)),
        TrackConfig::Audio(_) => w.full(b"smhd", 0, 0, |w| w.zeros(4)),
    }
    w.boxed(b"dinf", |w| {
        w.full(b"dref", 0, 0, |w| {
            w.u32(1);
            w.full(b"url ", 0, 1, |_| {});
        });
    });
    w.boxed(b"stbl", |w| {
        w.full(b"stsd", 0, 0, |w| {
            w.u32(1);
            match track {
                TrackConfig::Video(video) => video_entry(w, video),
                TrackConfig::Audio(audio) => audio_entry(w, audio),
            }
        });
        w.full(b"stts", 0, 0, |w| w.u32(0));
        w.full(b"stsc", 0, 0, |w| w.u32(0));
        w.full(b"stsz", 0, 0, |w| w.zeros(8));
        w.full(b"stco", 0, 0, |w| w.u32(0));
    });
}

fn video_entry(w: &mut Writer, video: &VideoConfig) {
    let (entry, record) = match video.codec {
        VideoCodec::H264 => (b"avc1", b"avcC"),
        VideoCodec::Hevc => (b"hvc1", b"hvcC"),
        VideoCodec::Av1 => (b"av01", b"av1C"),
    };
    w.boxed(entry, |w| {
        w.zeros(6);
        w.u16(1);
        w.zeros(16);
        w.u16(video.width.min(0xFFFF) as u16);
        w.u16(video.height.min(0xFFFF) as u16);
        w.u32(0x0048_0000);
        w.u32(0x0048_0000);
        w.u32(0);
        w.u16(1);
        w.zeros(32);
        w.u16(24);
        w.u16(0xFFFF);
        w.boxed(record, |w| w.put(&video.record));
    });
}

fn audio_entry(w: &mut Writer, audio: &AudioConfig) {
    let entry = match audio.codec {
        AudioCodec::Aac => b"mp4a",
        AudioCodec::Ac3 => b"ac-3",
        AudioCodec::EAc3 => b"ec-3",
    };
    w.boxed(entry, |w| {
        w.zeros(6);
        w.u16(1);
        w.zeros(8);
        w.u16(audio.channels);
        w.u16(16);
        w.u32(0);
        // In 16.16 fixed point; rates above are in the time scale only.
        w.u32(if audio.sample_rate > 0xFFFF { 0 } else { audio.sample_rate << 16 });
        match audio.codec {
            AudioCodec::Aac => w.full(b"esds", 0, 0, |w| descriptors(w, &audio.record)),
            AudioCodec::Ac3 => w.boxed(b"dac3", |w| w.put(&audio.record)),
            AudioCodec::EAc3 => w.boxed(b"dec3", |w| w.put(&audio.record)),
        }
    });
}

/// The descriptors of an AAC stream with this `AudioSpecificConfig`.
fn descriptors(w: &mut Writer, record: &[u8]) {
    // A descriptor's length is written in four bytes of seven bits each.
    let descriptor = |w: &mut Writer, tag: u8, length: usize| {
        let length = length as u32;
        w.put(&[tag, 0x80 | (length >> 21) as u8, 0x80 | (length >> 14) as u8, 0x80 | (length >> 7) as u8]);
        w.put(&[length as u8 & 0x7F]);
    };
    descriptor(w, 3, 3 + 5 + 13 + 5 + record.len() + 5 + 1);
    w.put(&[0, 0, 0]);
    descriptor(w, 4, 13 + 5 + record.len());
    w.put(&[0x40, 0x15]);
    w.zeros(11);
    descriptor(w, 5, record.len());
    w.put(record);
    descriptor(w, 6, 1);
    w.put(&[2]);
}

/// A `moof` of these runs, and the header of the `mdat` that the samples of all runs follow, in order.
pub(crate) fn fragment(number: u32, runs: &[Run]) -> Vec<u8> {
    let mut w = Writer::default();
    let mut offsets = Vec::new();
    let sizes: Vec<u32> =
        runs.iter().map(|run| run.samples.iter().map(|sample| sample.bytes).sum()).collect();
    w.boxed(b"moof", |w| {
        w.full(b"mfhd", 0, 0, |w| w.u32(number));
        for run in runs {
            w.boxed(b"traf", |w| {
                // Offsets count from the moof.
                w.full(b"tfhd", 0, 0x02_0000, |w| w.u32(track_id(run.media)));
                w.full(b"tfdt", 1, 0, |w| w.put(&run.time.to_be_bytes()));
                // Data offset; for each sample duration, size, flags and a signed composition offset.
                w.full(b"trun", 1, 0x0F01, |w| {
                    w.u32(run.samples.len() as u32);
                    offsets.push(w.0.len());
                    w.u32(0);
                    for sample in &run.samples {
                        w.u32(sample.duration);
                        w.u32(sample.bytes);
                        w.u32(if sample.key { SYNC_SAMPLE } else { NON_SYNC_SAMPLE });
                        w.put(&sample.offset.to_be_bytes());
                    }
                });
            });
        }
    });
    let mut data = w.0.len() as u32 + 8;
    for (at, size) in offsets.into_iter().zip(&sizes) {
        w.0[at..at + 4].copy_from_slice(&data.to_be_bytes());
        data += size;
    }
    w.u32(8 + sizes.iter().sum::<u32>());
    w.put(b"mdat");
    w.0
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn boxes_of_fixed_layout_have_their_size() {
        let video = VideoConfig {
            codec: VideoCodec::H264,
            record: Bytes::from_static(b"record"),
            name: "avc1.64001f".into(),
            width: 640,
            height: 360,
            frames_per_1000_s: 25_000,
        };
        let audio = AudioConfig {
            codec: AudioCodec::Aac,
            record: Bytes::from_static(&[0x11, 0x90]),
            name: "mp4a.40.2".into(),
            sample_rate: 48_000,
            channels: 2,
            frame_samples: 1024,
        };
        let bytes = init(&[TrackConfig::Video(video), TrackConfig::Audio(audio)]);
        // The form of version 0 in ISO/IEC 14496-12. ffmpeg accepts other forms, browsers do not.
        for (kind, size, count) in [
            (b"mvhd", 108_u32, 1),
            (b"tkhd", 92, 2),
            (b"mdhd", 32, 2),
            (b"vmhd", 20, 1),
            (b"smhd", 16, 1),
            (b"trex", 32, 2),
        ] {
            let wanted = [&size.to_be_bytes()[..], kind].concat();
            let found = bytes.windows(8).filter(|own| *own == wanted).count();
            assert_eq!(found, count, "{}", String::from_utf8_lossy(kind));
        }
    }
}
