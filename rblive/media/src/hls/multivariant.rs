//! Multivariant playlists.

use std::fmt::Write;

use crate::rendition::{Rendition, Video, quotable};

/// A rendition, and the average bit rate of its segments in bits per second, if that is known.
pub type Measured = (Rendition, Option<u64>);

/// Writes the playlist of a stream's renditions, each with the average bit rate of its segments, if that is known. The playlist of
/// rendition 2 is at `2/media.m3u8` and `query`.
///
/// Whether segments begin with key frames is in the media playlists, since an encoder may change it.
///
/// Renditions with pictures are variants. If there are any, renditions with sound alone are a group of alternatives to the
/// sound of the variants; otherwise they are the variants.
pub fn multivariant_playlist(renditions: &[Measured], query: &str) -> String {
    let mut to = "#EXTM3U\n#EXT-X-VERSION:7\n".to_owned();
    let has_pictures = renditions.iter().any(|(own, _)| !own.is_audio_only());
    let sound: Vec<&Measured> =
        renditions.iter().filter(|(own, _)| own.is_audio_only() && has_pictures).collect();
    for (index, (Rendition { id, .. }, _)) in sound.iter().enumerate() {
        let default = if index == 0 { "YES" } else { "NO" };
        let _ = writeln!(
            to,
            "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"sound\",NAME=\"Sound {id}\",DEFAULT={default},AUTOSELECT=YES,\
             URI=\"{id}/media.m3u8{query}\""
        );
    }
    for own in renditions.iter().filter(|(own, _)| own.is_audio_only() != has_pictures) {
        variant(&mut to, own, &sound);
        let _ = writeln!(to, "{}/media.m3u8{query}", own.0.id);
    }
    to
}

fn variant(to: &mut String, own: &Measured, sound: &[&Measured]) {
    let (rendition, _) = own;
    let most = sound.iter().map(|(one, _)| one.bandwidth).max().unwrap_or(0);
    let bandwidth = rendition.bandwidth.saturating_add(most).max(1);
    let _ = write!(to, "#EXT-X-STREAM-INF:BANDWIDTH={bandwidth}");
    if let Some(average) = average(own, sound) {
        let _ = write!(to, ",AVERAGE-BANDWIDTH={}", average.clamp(1, bandwidth));
    }
    let mut codecs = quotable(&rendition.codecs);
    for other in sound.iter().map(|(one, _)| quotable(&one.codecs)).filter(|other| !other.is_empty()) {
        if !codecs.split(',').any(|own| own.trim() == other) && !codecs.is_empty() {
            codecs = format!("{codecs},{other}");
        }
    }
    if !codecs.is_empty() {
        let _ = write!(to, ",CODECS=\"{codecs}\"");
    }
    if let Some(Video { width, height, .. }) = rendition.video {
        let _ = write!(to, ",RESOLUTION={width}x{height}");
    }
    if let Some(frames) = rendition.frames_per_1000_s() {
        let _ = write!(to, ",FRAME-RATE={:.3}", f64::from(frames) / 1000.0);
    }
    if !sound.is_empty() {
        to.push_str(",AUDIO=\"sound\"");
    }
    to.push('\n');
}

/// The average rate of a variant with the sound of the highest one, if all of them are known.
fn average(own: &Measured, sound: &[&Measured]) -> Option<u64> {
    let most = sound.iter().map(|(_, average)| *average).try_fold(0, |most, own| Some(most.max(own?)))?;
    Some(own.1?.saturating_add(most))
}
