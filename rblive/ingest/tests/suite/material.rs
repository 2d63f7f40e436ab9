//! Streams of numbered frames, at 25 frames a second with a key frame each second: H.264 in transport streams and in RTMP messages.
//! The parameter sets are real. The slices only carry their frame's number: servers do not decode pictures.

/// The sequence parameter set of a picture of 160x90.
pub const SMALL: &[u8] = &[
    0x67, 0x42, 0xC0, 0x0B, 0xDA, 0x0A, 0x37, 0xE4, 0xC0, 0x44, 0, 0, 3, 0, 4, 0, 0, 3, 0, 0xC8, 0x3C, 0x50,
    0xAA, 0x80,
];
/// The sequence parameter set of a picture of 320x180.
pub const LARGE: &[u8] = &[
    0x67, 0x42, 0xC0, 0x0C, 0xDA, 0x05, 0x06, 0x7E, 0x7C, 0x04, 0x40, 0, 0, 3, 0, 0x40, 0, 0, 0x0C, 0x83,
    0xC5, 0x0A, 0xA8,
];
const PPS: &[u8] = &[0x68, 0xCE, 0x0F, 0xC8];
/// The frames of a second.
pub const RATE: u8 = 25;
const FRAME_TICKS: u64 = 3600;
const VIDEO_PID: u16 = 0x100;
const PMT_PID: u16 = 0x1000;

/// The slice of a frame.
fn slice(number: u8) -> Vec<u8> {
    slice_of(number, 300)
}

fn slice_of(number: u8, bytes: usize) -> Vec<u8> {
    let kind = if number.is_multiple_of(RATE) { 0x65 } else { 0x41 };
    [&[kind][..], &vec![number + 1; bytes]].concat()
}

/// The numbers of the frames in a part.
pub fn frames_of(part: &[u8]) -> Vec<u8> {
    let (mut numbers, mut rest) = (Vec::new(), part);
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let size = u32::from_be_bytes(*head.first_chunk().unwrap()) as usize;
        let (mut content, next) = after.split_at(size - 8);
        rest = next;
        while &head[4..] == b"mdat" && !content.is_empty() {
            let (length, after) = content.split_first_chunk().unwrap();
            let (unit, next) = after.split_at(u32::from_be_bytes(*length) as usize);
            numbers.push(unit[1] - 1);
            content = next;
        }
    }
    numbers
}

fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04C1_1DB7 } else { 0 }
        })
    })
}

/// Appends packets with a payload. The last one is filled up with its adaptation field.
fn packets(pid: u16, payload: &[u8], counter: &mut u8, to: &mut Vec<u8>) {
    for (index, piece) in payload.chunks(184).enumerate() {
        let begins = if index == 0 { 0x40 } else { 0 };
        let adapted = if piece.len() < 184 { 0x20 } else { 0 };
        to.extend([0x47, begins | (pid >> 8) as u8, pid as u8, 0x10 | adapted | *counter & 15]);
        *counter = counter.wrapping_add(1);
        let filling = 184 - piece.len();
        if filling > 0 {
            to.push(filling as u8 - 1);
            to.extend([0].iter().chain(&[0xFF; 183]).take(filling - 1));
        }
        to.extend(piece);
    }
}

fn table(pid: u16, section: &[u8], to: &mut Vec<u8>) {
    packets(pid, &[&[0], section, &crc32(section).to_be_bytes()].concat(), &mut 0, to);
}

/// A transport stream with these frames.
pub fn ts(sps: &[u8], numbers: std::ops::Range<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    table(
        PAT_PID,
        &[0, 0xB0, 13, 0, 1, 0xC1, 0, 0, 0, 1, 0xE0 | (PMT_PID >> 8) as u8, PMT_PID as u8],
        &mut bytes,
    );
    let [high, low] = (0xE000 | VIDEO_PID).to_be_bytes();
    let pmt = [2, 0xB0, 18, 0, 1, 0xC1, 0, 0, high, low, 0xF0, 0, 0x1B, high, low, 0xF0, 0];
    table(PMT_PID, &pmt, &mut bytes);
    let mut counter = 0;
    for number in numbers {
        let time = u64::from(number) * FRAME_TICKS + 126_000;
        let five = |at: u32| (time >> at & 0x7FFF) as u16 * 2 + 1;
        let mut pes = vec![0, 0, 1, 0xE0, 0, 0, 0x80, 0x80, 5, 0x21 | (time >> 29 & 14) as u8];
        pes.extend(five(15).to_be_bytes());
        pes.extend(five(0).to_be_bytes());
        let sets: &[&[u8]] = if number.is_multiple_of(RATE) { &[sps, PPS] } else { &[] };
        for unit in sets.iter().copied().chain([&slice(number)[..]]) {
            pes.extend([0, 0, 0, 1]);
            pes.extend(unit);
        }
        packets(VIDEO_PID, &pes, &mut counter, &mut bytes);
    }
    bytes
}

const PAT_PID: u16 = 0;

/// The video message that configures H.264.
pub fn flv_config(sps: &[u8]) -> Vec<u8> {
    let mut message = vec![0x17, 0, 0, 0, 0, 1, sps[1], sps[2], sps[3], 0xFF, 0xE1, 0, sps.len() as u8];
    message.extend(sps);
    message.extend([1, 0, PPS.len() as u8]);
    message.extend(PPS);
    message
}

/// The video message of a frame.
pub fn flv_frame(number: u8) -> Vec<u8> {
    flv_frame_of(number, 300)
}

/// The video message of a frame of this size.
pub fn flv_frame_of(number: u8, bytes: usize) -> Vec<u8> {
    let slice = slice_of(number, bytes);
    let mut message = vec![if number.is_multiple_of(RATE) { 0x17 } else { 0x27 }, 1, 0, 0, 0];
    message.extend((slice.len() as u32).to_be_bytes());
    message.extend(slice);
    message
}
