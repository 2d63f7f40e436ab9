//! The multivariant playlist that an encoder pushes beside its renditions: which of its streams are renditions of one.

use rblive::content::{MAX_RENDITIONS, check_name};

/// Why a multivariant playlist names no renditions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MasterError {
    #[error(
        "the multivariant playlist has '{}': each rendition needs a folder of its own below that of the playlist, as \
         /live/NAME/%v/media.m3u8 gives ffmpeg's",
        .0.escape_default()
    )]
    Address(String),
    #[error("the multivariant playlist has more than {MAX_RENDITIONS} renditions")]
    TooMany,
}

/// The names of the streams that are renditions in the playlist of stream `name`, in the playlist's order. Empty if the playlist is not
/// a multivariant one.
pub(crate) fn renditions(name: &str, text: &str) -> Result<Vec<String>, MasterError> {
    let mut found: Vec<String> = Vec::new();
    let mut is_variant = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let address = if line.starts_with("#EXT-X-STREAM-INF:") {
            is_variant = true;
            continue;
        } else if line.starts_with("#EXT-X-MEDIA:") {
            quoted(line, "URI=\"")
        } else if !line.starts_with('#') && std::mem::take(&mut is_variant) {
            Some(line)
        } else {
            None
        };
        let Some(address) = address else { continue };
        let stream = folder(address).map(|folder| format!("{name}/{folder}"));
        let stream = stream.filter(|stream| check_name(stream));
        let stream = stream.ok_or_else(|| MasterError::Address(address.chars().take(200).collect()))?;
        if !found.contains(&stream) {
            found.push(stream);
        }
        if found.len() > MAX_RENDITIONS {
            return Err(MasterError::TooMany);
        }
    }
    Ok(found)
}

/// The folder of a relative address.
fn folder(address: &str) -> Option<&str> {
    let path = address.split(['?', '#']).next().unwrap_or("");
    Some(path.rsplit_once('/')?.0.trim_start_matches("./"))
}

fn quoted<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_renditions_of_a_playlist() {
        let text = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"sound/a.m3u8\"\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"\r\n0/media.m3u8?x=1\r\n\n#EXT-X-STREAM-INF:BANDWIDTH=2\n./1/media.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=3\n1/media.m3u8\n";
        assert_eq!(renditions("a/b", text).unwrap(), ["a/b/sound", "a/b/0", "a/b/1"]);
        assert_eq!(renditions("a", "#EXTM3U\n#EXTINF:1,\nx/0.ts\n"), Ok(vec![]));
    }

    #[test]
    fn addresses_that_leave_the_folder_are_refused() {
        for bad in ["media.m3u8", "../b/media.m3u8", "https://example.org/x/y", "/live/b/m.m3u8", "a b/m"] {
            let text = format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{bad}\n");
            assert_eq!(renditions("a", &text), Err(MasterError::Address(bad.to_owned())));
        }
        let many: String = (0..65).map(|n| format!("#EXT-X-STREAM-INF:BANDWIDTH=1\n{n}/m\n")).collect();
        assert_eq!(renditions("a", &many), Err(MasterError::TooMany));
    }
}
