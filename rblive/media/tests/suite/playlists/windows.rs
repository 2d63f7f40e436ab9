//! The playlists of a window against the rules.

use rblive_media::hls::MediaPlaylist;
use rblive_media::rendition::Container;
use rblive_media::window::LiveWindow;

use super::rules::{Read, check};

pub fn playlist(low_latency: bool) -> MediaPlaylist<'static> {
    MediaPlaylist { container: Container::Cmaf, low_latency, skip: false, query: "", reports: &[] }
}

/// The playlists of `window` follow the rules, and a delta playlist is the end of the whole one.
pub fn check_window<T>(window: &LiveWindow<T>, low_latency: bool) -> Read {
    let whole = check(&playlist(low_latency).write(window));
    let delta = check(&MediaPlaylist { skip: true, ..playlist(low_latency) }.write(window));
    assert_eq!(whole.sequence, delta.sequence);
    assert_eq!(delta.skipped as usize + delta.segments.len(), whole.segments.len());
    for (number, segment) in &delta.segments {
        let same = &whole.segments[number];
        assert_eq!((&segment.uri, segment.us, segment.gap), (&same.uri, same.us, same.gap));
    }
    assert_eq!((delta.hint, delta.ended), (whole.hint.clone(), whole.ended));
    whole
}
