//! Messages of an RDMA peer.

use rocketnet_rdma::frame::{Key, Record, empty, push, read_greeting, set_posted, split};

/// The positions and sizes to try a key with.
const TRIED: [u64; 6] = [0, 1, 4095, 4096, 1 << 40, u64::MAX];

/// Any bytes are a frame or an error. A frame encodes to the same bytes, and a key tells for each range how
/// much of it fits into the ring before its end.
pub fn rdma_frame(data: &[u8]) {
    let _ = read_greeting(data);
    let Ok((posted, found)) = split(data) else { return };
    assert!(found.clone().count() <= data.len(), "a record takes bytes");
    let mut again = empty();
    set_posted(&mut again, posted);
    let records: Vec<_> = found.map_while(Result::ok).collect();
    for record in &records {
        if let Record::Key(_, key) = record {
            pieces(key);
        }
        if !push(&mut again, *record) {
            return;
        }
    }
    let (told, found) = split(&again).expect("written by this end");
    assert_eq!(told, posted);
    assert!(found.map(|record| record.expect("written by this end")).eq(records));
}

fn pieces(key: &Key) {
    if key.capacity == 0 {
        return;
    }
    let end = key.address.checked_add(key.capacity).expect("the range was checked");
    for at in TRIED {
        for left in TRIED {
            for laps in [false, true] {
                let piece = key.piece(at, left, laps);
                assert!(piece <= left && (piece > 0 || left == 0), "{piece} of {left} bytes at {at}");
                assert!(
                    key.address + at % key.capacity + piece <= end,
                    "{piece} bytes at {at}: over the end"
                );
            }
        }
    }
}
