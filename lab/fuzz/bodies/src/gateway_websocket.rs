//! Requests and frames of WebSocket.

use rbmq_gateway::websocket::{End, MAX_REQUEST_BYTES, Reader, answer};

/// The first byte chooses the pieces in which the others come. Whatever the pieces are, frames carry the same bytes and end for the same reason, and
/// a request has the same answer, which nothing before its end has.
pub fn gateway_websocket(data: &[u8]) {
    let Some((&piece, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert!(whole.0.len() <= bytes.len());
    assert_eq!(read(bytes, usize::from(piece).max(1)), whole);
    if let Some(End::Fault(fault)) = whole.1 {
        assert!([1002, 1003, 1007].contains(&fault.code()) && !fault.to_string().is_empty());
    }
    match answer(bytes, "mqtt", &[]) {
        Ok(Some((text, used))) => {
            assert!(text.starts_with(b"HTTP/1.1 101 ") && used <= bytes.len().min(MAX_REQUEST_BYTES));
            assert_eq!(answer(&bytes[..used], "mqtt", &[]), Ok(Some((text, used))));
            assert_eq!(answer(&bytes[..used - 1], "mqtt", &[]), Ok(None));
        }
        Ok(None) => assert!(bytes.len() < MAX_REQUEST_BYTES),
        Err(refused) => assert!(refused.answer.starts_with(b"HTTP/1.1 4") && !refused.why.is_empty()),
    }
}

/// The content of frames, and the reason why they end.
fn read(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<End>) {
    let (mut reader, mut all) = (Reader::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        let mut piece = piece.to_vec();
        let count = reader.read(&mut piece);
        all.extend_from_slice(&piece[..count]);
        reader.take_ping(|ping| assert!(ping.len() <= 125));
    }
    (all, reader.end())
}
