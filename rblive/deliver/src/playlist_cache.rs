//! Playlists that were written since a stream last changed: one text for all viewers.

use bytes::Bytes;

use crate::answer::{Answer, Cache};

/// Stands for a viewer's token in a text that others get too. No playlist has this character.
const TOKEN: &str = "\u{1}";

/// The key of a playlist: the rendition, and whether it skips segments that an older playlist has.
pub(crate) type Key = (u16, bool);

/// A text with its entity tag.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub etag: String,
    pub bytes: Bytes,
}

/// The playlists of a stream in its present state. Each change of the stream clears them.
#[derive(Debug, Default)]
pub(crate) struct PlaylistCache(Vec<(Key, Text)>);

impl PlaylistCache {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn has(&self, key: Key) -> bool {
        self.0.iter().any(|(own, _)| *own == key)
    }

    /// The playlist for a viewer with the token `query`. Viewers without a token share the memory of one text.
    pub fn get(&self, key: Key, query: &str) -> Option<Text> {
        let (_, text) = self.0.iter().find(|(own, _)| *own == key)?;
        Some(if query.is_empty() { text.clone() } else { with_token(text, query) })
    }

    pub fn put(&mut self, key: Key, text: Text) {
        self.0.push((key, text));
    }
}

impl Text {
    /// The text for all viewers. If `query` is a token, `write` gets a placeholder that [`PlaylistCache::get`] replaces by each viewer's token.
    pub fn of(query: &str, write: impl FnOnce(&str) -> String) -> Self {
        write(if query.is_empty() { "" } else { TOKEN }).into()
    }

    /// The answer for a playlist of this type, which is valid until its stream changes.
    pub fn answer(self, kind: &'static str) -> Answer {
        Answer { etag: Some(self.etag), ..Answer::of(200, kind, Cache::No, self.bytes) }
    }
}

fn with_token(text: &Text, query: &str) -> Text {
    String::from_utf8_lossy(&text.bytes).replace(TOKEN, query).into()
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let etag = format!("\"{:08x}-{}\"", crc32c::crc32c(text.as_bytes()), text.len());
        Self { etag, bytes: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_viewer_gets_its_token_and_one_text_is_written() {
        let mut written = PlaylistCache::default();
        let text = Text::of("?token=a", |query| format!("1.m4s{query}\n2.m4s{query}\n"));
        written.put((1, false), text);
        let get = |query: &str| written.get((1, false), query).unwrap();
        assert_eq!(&get("?token=a").bytes[..], b"1.m4s?token=a\n2.m4s?token=a\n");
        assert_eq!(&get("?token=b").bytes[..], b"1.m4s?token=b\n2.m4s?token=b\n");
        assert_ne!(get("?token=a").etag, get("?token=b").etag);
        assert!(written.get((1, true), "").is_none());
        written.clear();
        assert!(written.get((1, false), "").is_none());
    }
}
