//! The segment of docs/seglog-vectors.json, byte for byte.

use std::sync::Arc;

use seglog::format::{self, IndexEntry, Kind, Mark, RecordHeader, Seal, SegmentHeader};
use seglog::{HoleCause, Options, Read, Reader};
use seglog_sim::SimStorage;
use serde_json::Value;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/seglog-vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are there")).expect("JSON")
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte")).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| value.as_str().and_then(|text| text.parse().ok()).expect("a number"))
}

fn kind(value: &Value) -> Kind {
    match value.as_str() {
        Some("data") => Kind::Data,
        Some("hole") => Kind::Hole,
        Some("lost") => Kind::Lost,
        Some("seal") => Kind::Seal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mark_is_these_bytes() {
    let told = &vectors()["mark"];
    let id = |name: &str| hex(&told[name]).try_into().expect("sixteen bytes");
    let (end, durable) = (number(&told["end"]), number(&told["durable"]));
    let mark = Mark { log_id: id("log_id"), boot: id("boot"), end, durable };
    assert_eq!(mark.encode().to_vec(), hex(&told["hex"]));
    assert_eq!(Mark::decode(&mark.encode()), Some(mark));
    for bit in 0..64 * 8 {
        let mut bytes = mark.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Mark::decode(&bytes), None, "bit {bit}");
    }
}

#[test]
fn headers_records_and_the_trailer_are_these_bytes() {
    let vectors = vectors();
    let told = &vectors["header"];
    let header = SegmentHeader {
        base: number(&told["base"]),
        log_id: hex(&told["log_id"]).try_into().expect("sixteen bytes"),
        created: number(&told["created"]),
        salt: number(&told["salt"]),
    };
    assert_eq!(header.encode().to_vec(), hex(&told["hex"]));
    assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    assert_eq!(u64::from(header.seed()), number(&vectors["seed"]));
    assert_eq!(vectors["name"].as_str(), Some(&*format::file_name(header.base)));
    assert_eq!(format::base_of(&format::file_name(header.base)), Some(header.base));

    for told in vectors["records"].as_array().expect("a list") {
        let (bytes, payload) = (hex(&told["hex"]), hex(&told["payload"]));
        let record = RecordHeader {
            kind: kind(&told["kind"]),
            position: number(&told["position"]),
            len: payload.len() as u32,
            payload_crc: crc32c::crc32c(&payload),
            time: number(&told["time"]),
            durable: number(&told["durable"]),
        };
        let head = record.encode(header.seed());
        assert_eq!(bytes[..48], head, "{}", told["name"]);
        assert_eq!(RecordHeader::decode(header.seed(), &head), Some(record));
        assert!(record.matches(&payload) && bytes[48..].starts_with(&payload));
        assert!(bytes[48 + payload.len()..].iter().all(|b| *b == 0));
        assert_eq!((record.stored(), record.end(&payload)), (bytes.len() as u64, number(&told["end"])));
        match record.kind {
            Kind::Hole | Kind::Lost => {
                assert_eq!(format::encode_hole(record.end(&payload)).to_vec(), payload)
            }
            Kind::Seal => assert_eq!(Seal::decode(&payload).expect("a seal").encode(), payload),
            Kind::Data => {}
        }
    }
    let trailer = format::encode_trailer(header.seed(), number(&vectors["trailer"]["seal_offset"]));
    assert_eq!(trailer.to_vec(), hex(&vectors["trailer"]["hex"]));
    assert_eq!(
        format::decode_trailer(header.seed(), &trailer),
        Some(number(&vectors["trailer"]["seal_offset"]))
    );
}

#[test]
fn what_is_not_of_the_format_is_refused() {
    let vectors = vectors();
    let seed = number(&vectors["seed"]) as u32;
    for told in vectors["refused"].as_array().expect("a list") {
        let bytes = hex(&told["hex"]).try_into().expect("a header's length");
        assert_eq!(RecordHeader::decode(seed, &bytes), None, "{}", told["name"]);
    }
    let entry = |position, offset| IndexEntry { position, offset };
    let seal = Seal { index: vec![entry(5, 64), entry(5, 200)], ..Seal::default() };
    assert_eq!(Seal::decode(&seal.encode()), None, "an index that is not in order");
}

#[test]
fn a_log_reads_the_file() {
    let vectors = vectors();
    let disk = SimStorage::new(0);
    let name = vectors["name"].as_str().expect("a name");
    disk.set_contents(format!("log/{name}"), hex(&vectors["file"]));
    let mut reader = Reader::open_on(Arc::new(disk), "log", Options::default()).expect("it opens");
    assert_eq!(reader.id().to_vec(), hex(&vectors["header"]["log_id"]));
    let mut at = 1000;
    for told in vectors["records"].as_array().expect("a list") {
        match (reader.read(at).expect("a read"), kind(&told["kind"])) {
            (Read::Batch(batch), Kind::Data) => assert_eq!(batch.bytes, hex(&told["payload"])),
            (Read::Hole(hole), Kind::Hole) => assert_eq!(hole.cause, HoleCause::Marked),
            (Read::Hole(hole), Kind::Lost) => assert_eq!(hole.cause, HoleCause::Damaged),
            (Read::End { end }, Kind::Seal) => assert_eq!(end, at),
            (read, kind) => panic!("{read:?} at {at}, where {kind:?} is"),
        }
        at = number(&told["end"]);
    }
}
