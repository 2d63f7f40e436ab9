//! RBLive: a hostile peer of the RTMP server.

use rblive_ingest::rtmp::{Session, SessionEvent};

/// The largest message that is taken.
const MAX_MESSAGE: usize = 1 << 12;

/// A connection in pieces of 700 bytes: no panic, media only from an accepted publisher, no message above the limit, and answers
/// in proportion to what came in.
pub fn rblive_rtmp(data: &[u8]) {
    let mut session = Session::new(MAX_MESSAGE);
    let (mut accepted, mut sent) = (false, 0);
    for piece in data.chunks(700) {
        session.receive(piece);
        let ended = loop {
            match session.next_event() {
                Ok(Some(SessionEvent::Publish { .. })) => {
                    accepted = true;
                    session.accept();
                }
                Ok(Some(SessionEvent::Audio { payload, .. } | SessionEvent::Video { payload, .. })) => {
                    assert!(accepted && payload.len() <= MAX_MESSAGE);
                }
                Ok(Some(SessionEvent::Unpublish)) => accepted = false,
                Ok(Some(SessionEvent::Tracks { .. })) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        sent += session.take_output().len();
        assert!(sent <= 4096 + 64 * data.len());
        if ended {
            return;
        }
    }
}
