//! Multivariant playlists.

use std::fmt::Write;

use crate::rendition::{Rendition, quotable};

/// Writes the playlist of a stream's renditions. The playlist of rendition 2 is at `2/media.m3u8` and `query`.
///
/// Renditions with pictures are variants. If there are any, renditions with sound alone are a group of alternatives to the
/// sound of the variants; otherwise they are the variants.
pub fn multivariant_playlist(renditions: &[Rendition], query: &str) -> String {
    let mut to = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n".to_owned();
    let has_pictures = renditions.iter().any(|rendition| !rendition.audio_only);
    let sound: Vec<&Rendition> = renditions.iter().filter(|one| one.audio_only && has_pictures).collect();
    for (index, Rendition { id, .. }) in sound.iter().enumerate() {
        let default = if index == 0 { "YES" } else { "NO" };
        let _ = writeln!(
            to,
            "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"sound\",NAME=\"Sound {id}\",DEFAULT={default},AUTOSELECT=YES,\
             URI=\"{id}/media.m3u8{query}\""
        );
    }
    for rendition in renditions.iter().filter(|one| one.audio_only != has_pictures) {
        variant(&mut to, rendition, &sound);
        let _ = writeln!(to, "{}/media.m3u8{query}", rendition.id);
    }
    to
}

fn variant(to: &mut String, rendition: &Rendition, sound: &[&Rendition]) {
    let most = sound.iter().map(|one| one.bandwidth).max().unwrap_or(0);
    let bandwidth = rendition.bandwidth.saturating_add(most).max(1);
    let _ = write!(to, "#EXT-X-STREAM-INF:BANDWIDTH={bandwidth}");
    if let Some(average) = average(rendition, sound) {
        let _ = write!(to, ",AVERAGE-BANDWIDTH={}", average.clamp(1, bandwidth));
    }
    let mut codecs = quotable(&rendition.codecs);
    for other in sound.iter().map(|one| quotable(&one.codecs)).filter(|other| !other.is_empty()) {
        if !codecs.split(',').any(|own| own.trim() == other) && !codecs.is_empty() {
            codecs = format!("{codecs},{other}");
        }
    }
    if !codecs.is_empty() {
        let _ = write!(to, ",CODECS=\"{codecs}\"");
    }
    if let Some((width, height)) = rendition.resolution {
        let _ = write!(to, ",RESOLUTION={width}x{height}");
    }
    if let Some(rate) = rendition.frame_rate.filter(|rate| rate.is_finite() && *rate > 0.0) {
        let _ = write!(to, ",FRAME-RATE={rate:.3}");
    }
    if !sound.is_empty() {
        to.push_str(",AUDIO=\"sound\"");
    }
    to.push('\n');
}

/// The average rate of a variant with the sound of the highest one, if all of them are known.
fn average(rendition: &Rendition, sound: &[&Rendition]) -> Option<u64> {
    let most = sound.iter().map(|one| one.average_bandwidth).try_fold(0, |most, own| Some(most.max(own?)))?;
    Some(rendition.average_bandwidth?.saturating_add(most))
}
