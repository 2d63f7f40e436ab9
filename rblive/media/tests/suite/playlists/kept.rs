//! Playlists of what was kept.

use m3u8_rs::{MediaPlaylistType, parse_media_playlist_res};
use proptest::prelude::*;
use rblive_media::hls::{VodPlaylist, VodSegment, with_query};
use rblive_media::rendition::Container;

fn segments() -> impl Strategy<Value = Vec<VodSegment>> {
    let one = (1..20_000_000u64, 0..3u32, any::<bool>(), any::<bool>(), any::<bool>());
    let one = one.prop_map(|(duration_us, init, gap, discontinuity, independent)| VodSegment {
        duration_us,
        wall_ns: 1_760_000_000_000_000_000,
        init,
        gap,
        discontinuity,
        independent,
    });
    proptest::collection::vec(one, 1..40)
}

proptest! {
    #[test]
    fn an_independent_parser_reads_them_and_they_are_continued(
        all in segments(), ts: bool, cut in 0..40usize,
    ) {
        let container = if ts { Container::Ts } else { Container::Cmaf };
        let mut whole = VodPlaylist::new(container);
        whole.set_note("goes on at 5");
        let mut continued = whole.clone();
        for (index, segment) in all.iter().enumerate() {
            if index == cut {
                continued = VodPlaylist::read(&continued.write()).unwrap();
            }
            whole.push(segment);
            continued.push(segment);
        }
        prop_assert_eq!(&whole, &continued);
        let text = whole.write();
        let parsed = parse_media_playlist_res(text.as_bytes()).unwrap();
        prop_assert_eq!(parsed.playlist_type, Some(MediaPlaylistType::Vod));
        let is_whole = all.iter().all(|own| own.independent || own.gap);
        prop_assert_eq!(parsed.independent_segments, is_whole && !ts);
        prop_assert!(parsed.end_list && parsed.segments.len() == all.len());
        let mut init = None;
        for (number, (got, own)) in parsed.segments.iter().zip(&all).enumerate() {
            prop_assert_eq!(&got.uri, &whole.file(number as u64));
            prop_assert!((f64::from(got.duration) - own.duration_us as f64 / 1e6).abs() < 1e-3);
            prop_assert!(got.duration.round() as u64 <= parsed.target_duration);
            prop_assert_eq!(got.discontinuity, own.discontinuity && number > 0);
            let gap = got.unknown_tags.iter().any(|tag| tag.tag == "X-GAP");
            prop_assert_eq!(gap, own.gap);
            init = got.map.as_ref().map(|map| map.uri.clone()).or(init);
            prop_assert_eq!(init.clone(), (!ts).then(|| format!("init-{}.mp4", own.init)));
        }
    }

    #[test]
    fn other_texts_are_refused(all in segments(), at in 0..2000usize, byte in 32..127u8) {
        let mut playlist = VodPlaylist::new(Container::Cmaf);
        all.iter().for_each(|segment| playlist.push(segment));
        let mut bytes = playlist.write().into_bytes();
        prop_assert!(VodPlaylist::read(std::str::from_utf8(&bytes[..bytes.len() - 1]).unwrap()).is_err());
        let at = at % bytes.len();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(read) = VodPlaylist::read(&text) {
            prop_assert_eq!(read.write(), text);
        }
    }
}

#[test]
fn every_address_gets_the_token() {
    let segment = VodSegment {
        duration_us: 2_000_000,
        wall_ns: 0,
        init: 7,
        gap: false,
        discontinuity: false,
        independent: true,
    };
    let mut playlist = VodPlaylist::new(Container::Cmaf);
    playlist.push(&segment);
    playlist.push(&segment);
    let text = with_query(&playlist.write(), "?token=1.a");
    assert_eq!(text.matches("?token=1.a").count(), 3);
    assert!(
        text.contains("#EXT-X-MAP:URI=\"init-7.mp4?token=1.a\"\n") && text.contains("\n1.m4s?token=1.a\n")
    );
}
