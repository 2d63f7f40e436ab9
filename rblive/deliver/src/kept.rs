//! The addresses below `/vod`: recordings, straight from their files.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use locks::Mutex;
use rblive_media::hls::{MAX_VOD_BYTES, MEDIA_TYPE, with_query};
use rblive_media::rendition::Container;
use rblive_record::{File, Place, Store};

use crate::answer::{Answer, Body, Cache};
use crate::file::FilePart;
use crate::playlist_cache::Text;
use crate::token::Access;

/// The most recordings of a list.
const MOST: usize = 1000;

/// How long a list is reused before the folders are read again.
const LISTED: Duration = Duration::from_secs(2);

/// The most lists that are kept for reuse.
const MAX_LISTS: usize = 256;

/// Lists by the stream that was asked for.
type Lists = HashMap<Option<String>, (Instant, Bytes)>;

/// The recordings, and lists of them that are reused for [`LISTED`].
#[derive(Debug, Default)]
pub(crate) struct Kept {
    store: Arc<Store>,
    lists: Mutex<Lists>,
}

impl Kept {
    pub fn new(store: Store) -> Self {
        Self { store: Arc::new(store), lists: Mutex::default() }
    }

    /// The list of the recordings of a stream, or of all streams, without those that the request may not see.
    pub async fn list(&self, stream: Option<String>, access: &Access) -> Answer {
        let of = |list: Bytes| Answer::of(200, "application/json", Cache::No, open(list, access));
        let known = self.lists.lock().get(&stream).filter(|(at, _)| at.elapsed() < LISTED).cloned();
        if let Some((_, list)) = known {
            return of(list);
        }
        let (store, asked) = (self.store.clone(), stream.clone());
        let read = move || Bytes::from(listed(&store, asked.as_deref()));
        let Ok(list) = tokio::task::spawn_blocking(read).await else {
            return Answer::text(500, "the recordings cannot be listed");
        };
        let mut lists = self.lists.lock();
        if lists.len() >= MAX_LISTS {
            lists.clear();
        }
        lists.insert(stream, (Instant::now(), list.clone()));
        of(list)
    }

    /// A file of a recording. `query`, a token, is appended to the addresses in playlists.
    pub async fn file(&self, place: Place, query: &str) -> Answer {
        let (store, file) = (self.store.clone(), place.file);
        let is_list = matches!(file, File::Index | File::Playlist(_));
        let read = move || {
            let opened = store.open(&place)?;
            if is_list { text(opened).map(Found::Text) } else { Ok(Found::File(opened)) }
        };
        let found = tokio::task::spawn_blocking(read).await.map_err(io::Error::other);
        match found.and_then(|found| found) {
            Ok(Found::Text(text)) => {
                let text = if query.is_empty() { text } else { with_query(&text, query) };
                Text::from(text).answer(MEDIA_TYPE)
            }
            Ok(Found::File(opened)) => media(opened, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Answer::text(404, "there is no such recording, or it was removed")
            }
            Err(error) => {
                tracing::warn!("a recording cannot be read: {error}");
                Answer::text(500, "the recording cannot be read; the server's log says why")
            }
        }
    }
}

enum Found {
    Text(String),
    File(std::fs::File),
}

fn listed(store: &Store, stream: Option<&str>) -> String {
    let row = |about: rblive_record::About| {
        let playlist = format!("/vod/{}/{}/index.m3u8", about.name, about.begin);
        serde_json::json!({
            "name": about.name, "begin": about.begin, "playlist": playlist, "seconds": about.seconds,
            "segments": about.segments, "gaps": about.gaps, "bytes": about.bytes, "renditions": about.renditions,
        })
    };
    let all: Vec<_> = store.list(stream, MOST).into_iter().map(row).collect();
    serde_json::json!({ "recordings": all }).to_string()
}

/// The recordings of a list that a request may see.
fn open(list: Bytes, access: &Access) -> Bytes {
    if access.is_all() {
        return list;
    }
    let mut list: serde_json::Value = serde_json::from_slice(&list).unwrap_or_default();
    if let Some(rows) = list.get_mut("recordings").and_then(|rows| rows.as_array_mut()) {
        rows.retain(|row| row["name"].as_str().is_some_and(|name| access.is_for(name)));
    }
    list.to_string().into()
}

fn text(file: std::fs::File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_VOD_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}

fn media(opened: std::fs::File, file: File) -> Answer {
    let kind = match file {
        File::Segment(_, _, Container::Ts) => "video/mp2t",
        _ => "video/mp4",
    };
    let about = match opened.metadata() {
        Ok(about) => about,
        Err(error) => return Answer::text(500, error.to_string()),
    };
    let at = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let etag = format!("\"{:x}-{:x}\"", about.len(), at.map_or(0, |at| at.as_nanos()));
    let body = Body::File(FilePart::new(opened, about.len()));
    Answer { etag: Some(etag), ranges: true, body, ..Answer::of(200, kind, Cache::Forever, "") }
}
