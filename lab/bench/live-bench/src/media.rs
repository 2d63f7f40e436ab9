//! Chunks of streams without an encoder: CMAF segments of stamped frames, with the header of RBLive's chunks.

use std::time::{SystemTime, UNIX_EPOCH};

use rblive::content::{Container, Description, Flags, HEADER_BYTES, Header, Kind, Rendition, Video};
use rblive_load::stamp::{Stamp, Stamper};
use rblive_media::flv::Demuxer;
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig};
use rblive_media::unit::{AccessUnit, Input, Media};

use crate::failure::Result;

/// Frames per second.
const FPS: u64 = 25;
const TICKS: i64 = 90_000;
/// H.264, baseline, 1280x720, 25 frames per second, pictures in decoding order; with its picture parameter set, as an FLV message.
const CONFIGURATION: &[u8] = &[
    0x17, 0, 0, 0, 0, 1, 0x42, 0xC0, 0x1F, 0xFF, 0xE1, 0, 19, 0x67, 0x42, 0xC0, 0x1F, 0xDA, 0x01, 0x40, 0x16,
    0xE8, 0x40, 0, 0, 3, 0, 0x40, 0, 0, 0x0C, 0xA1, 1, 0, 4, 0x68, 0xCE, 0x38, 0x80,
];

/// A stream that the bench publishes.
pub struct Stream {
    name: String,
    number: u32,
    frames: u64,
    frame_bytes: usize,
    segment_s: u64,
    segmenter: Segmenter,
}

/// A segment as three chunks: a description, an initialisation segment, and the media.
pub struct Chunks(pub [Vec<u8>; 3]);

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Stream {
    pub fn new(number: u32, mbit: f64, segment_s: u64) -> Result<Self> {
        let ms = segment_s as u32 * 1000;
        let config = SegmenterConfig { target_ms: ms, part_ms: ms, ..SegmenterConfig::default() };
        let mut segmenter = Segmenter::new(config, 0);
        segmenter.push(Input::Tracks { video: true, audio: false })?;
        let configuration =
            Demuxer::new().video(0, &CONFIGURATION.into())?.ok_or("the configuration is one")?;
        segmenter.push(configuration)?;
        let frame_bytes = (mbit * 1e6 / 8.0 / FPS as f64) as usize;
        Ok(Self { name: format!("s{number}"), number, frames: 0, frame_bytes, segment_s, segmenter })
    }

    /// The next segment as an encoder makes it.
    pub fn part(&mut self, stamper: &Stamper) -> Result<Part> {
        loop {
            if let Some(part) = self.segmenter.next_part() {
                return Ok(part);
            }
            let key = self.frames.is_multiple_of(FPS * self.segment_s);
            let mut data = (self.frame_bytes as u32).to_be_bytes().to_vec();
            let stamp = Stamp { stream: self.number, number: self.frames, time_ns: now_ns() };
            stamper.write(stamp, if key { 0x65 } else { 0x41 }, self.frame_bytes, &mut data);
            let time = self.frames as i64 * TICKS / FPS as i64;
            let unit = AccessUnit { media: Media::Video, dts: time, pts: time, key, data: data.into() };
            self.segmenter.push(Input::Unit(unit))?;
            self.frames += 1;
        }
    }

    /// The next segment in chunks.
    pub fn chunks(&mut self, stamper: &Stamper) -> Result<Chunks> {
        let part = self.part(stamper)?;
        let video = Video { width: 1280, height: 720, frames_per_1000_s: 25_000 };
        let rendition =
            Rendition { id: 1, codecs: "avc1.42c01f".into(), bandwidth: 0, video: Some(video), audio: None };
        let description = Description {
            name: self.name.clone(),
            container: Container::Cmaf,
            target_duration_us: self.segment_s * 1_000_000,
            part_target_us: None,
            renditions: vec![rendition],
        };
        let sequence = part.sequence;
        let header = |kind| Header { rendition: 1, sequence, ..Header::new(kind) };
        let media = Header {
            flags: Flags::INDEPENDENT | Flags::FIRST_PART | Flags::LAST_PART,
            duration_us: part.duration_us,
            start_us: part.start_us,
            ..header(Kind::Media)
        };
        Ok(Chunks([
            chunk(header(Kind::Description), &description.to_json()?),
            chunk(header(Kind::Init), &part.init),
            chunk(media, &part.to_vec()),
        ]))
    }
}

fn chunk(header: Header, payload: &[u8]) -> Vec<u8> {
    let header = Header { produced_ns: now_ns(), payload_bytes: payload.len() as u32, ..header };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend(header.encode());
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rblive::{ChunkRef, RsId};
    use rblive_media::fmp4::InitSegment;

    use super::*;

    #[test]
    fn chunks_are_those_of_a_node() {
        let stamper = Stamper::new();
        let mut stream = Stream::new(3, 1.0, 1).unwrap();
        for sequence in 0..3 {
            let Chunks(chunks) = stream.chunks(&stamper).unwrap();
            let [description, init, media] = chunks.map(|bytes| {
                let memory = Arc::new(bytes);
                let (header, payload) = ChunkRef::lent(RsId::from_u64(1), 0, &memory).content().unwrap();
                (header, payload.to_vec().unwrap())
            });
            assert_eq!(Description::from_json(&description.1).unwrap().name, "s3");
            let init = InitSegment::parse(&init.1.into()).unwrap();
            let times = init.times(&media.1).unwrap();
            assert_eq!(
                (times.start_us, times.duration_us, times.key),
                (sequence * 1_000_000, 1_000_000, true)
            );
            assert_eq!((media.0.sequence, media.0.duration_us), (sequence, 1_000_000));
            assert!((125_000..130_000).contains(&media.1.len()));
        }
    }
}
