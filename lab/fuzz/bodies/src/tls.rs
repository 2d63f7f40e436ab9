//! Records of TLS, of a peer that has the keys and keeps no rule.

use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{AeadKey, Iv};
use tls13::{Content, Keys, OVERHEAD, Secrets, Session};

fn keys(number: u8) -> Keys {
    let (key, iv) = (AeadKey::from([number; 32]), Iv::from([number; 12]));
    Keys::new(0, ConnectionTrafficSecrets::Aes256Gcm { key, iv }).expect("a cipher of TLS 1.3")
}

struct Numbers(u8);

impl Secrets for Numbers {
    fn next_sending(&mut self) -> Result<Keys, rustls::Error> {
        Ok(keys(0))
    }

    fn next_receiving(&mut self) -> Result<Keys, rustls::Error> {
        self.0 = self.0.wrapping_add(1);
        Ok(keys(self.0))
    }
}

/// The first byte says whether the peer is a server. Then each step has a kind, a length and as many bytes: sealed as data, as a
/// message of the handshake, as an alert, or sent as they are. The opened bytes are a beginning of the bytes that were
/// sealed as data.
pub fn tls_records(bytes: &[u8]) {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let mut session = Session::new(Box::new(Numbers(1)), keys(0), keys(1), 1 << 20, first & 1 == 1);
    let (mut peer, mut number) = (keys(1), 1_u8);
    let (mut stream, mut sealed, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    while let [kind, size, more @ ..] = rest {
        let (text, more) = more.split_at(usize::from(*size).min(more.len()));
        rest = more;
        let content = match kind % 4 {
            0 => Content::Data,
            1 => Content::Handshake,
            2 => Content::Alert,
            _ => {
                stream.extend_from_slice(text);
                continue;
            }
        };
        let mut record = vec![0; text.len() + OVERHEAD];
        let size = peer.seal(content, text, &mut record).expect("a short record");
        stream.extend_from_slice(&record[..size]);
        match (content, text) {
            (Content::Data, _) => sealed.extend_from_slice(text),
            (Content::Handshake, [24, 0, 0, 1, 0 | 1]) => {
                number = number.wrapping_add(1);
                peer = keys(number);
            }
            _ => {}
        }
    }
    // In pieces of any size, as a socket gives them.
    let mut waiting = Vec::new();
    for piece in stream.chunks(1 + usize::from(first >> 1) * 7) {
        waiting.extend_from_slice(piece);
        let Ok(used) = session.receive(&mut waiting, &mut opened) else { break };
        waiting.drain(..used);
    }
    assert!(sealed.starts_with(&opened), "bytes that were not sealed as data");
}
