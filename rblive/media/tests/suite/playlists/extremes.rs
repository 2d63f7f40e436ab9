//! Sources that say anything: numbers, times and sizes at the ends of their types.

use proptest::prelude::*;
use rblive_media::dash;
use rblive_media::hls::multivariant_playlist;
use rblive_media::rendition::{Rendition, Video};
use rblive_media::window::{LiveWindow, NewPart};

use super::cases;
use super::windows::playlist;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX / 2),
        Just(u64::from(u32::MAX)),
        any::<u64>(),
        0..100_u64
    ]
}

fn part() -> impl Strategy<Value = NewPart<()>> {
    let small = prop_oneof![3 => 0..4_u32, 1 => any::<u32>(), 1 => Just(u32::MAX)];
    let numbers = (number(), small.clone(), number(), small.clone(), number());
    (numbers, any::<[bool; 3]>(), small, 0..2_u32, prop::option::of(number())).prop_map(
        |(numbers, [independent, discontinuity, last], bytes, init, timeline)| {
            let (sequence, index, start_us, duration_us, produced_ns) = numbers;
            NewPart {
                sequence,
                index,
                start_us,
                duration_us,
                produced_ns,
                independent,
                discontinuity,
                timeline,
                last,
                bytes,
                init,
                data: (),
            }
        },
    )
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn no_source_makes_a_playlist_impossible(parts in prop::collection::vec((part(), any::<u8>()), 1..40), targets: (u64, u64)) {
        let mut window = LiveWindow::new(targets.0.clamp(1, 3_600_000_000), targets.1.clamp(1, 3_600_000_000));
        for (part, action) in parts {
            let (before, breaks) = (window.first_number(), window.discontinuity_sequence());
            match action {
                0..4 => window.on_new_source(),
                4..8 => window.end(),
                8..20 => window.release(|()| None),
                20..40 => window.release(|()| Some(0.7)),
                _ => {
                    window.push(part);
                }
            }
            prop_assert!(window.first_number() >= before, "numbers never go back");
            prop_assert!(window.discontinuity_sequence() >= breaks, "timelines neither");
            prop_assert!(window.segments().len() <= rblive_media::window::MAX_SEGMENTS);
            for low_latency in [false, true] {
                let text = playlist(low_latency).write(&window);
                prop_assert!(text.starts_with("#EXTM3U\n"));
            }
            let about = Rendition {
                id: 1,
                codecs: "avc1.42c00b".into(),
                bandwidth: u64::MAX,
                video: Some(Video { width: u32::MAX, height: u32::MAX, frames_per_1000_s: u32::MAX }),
                audio: None,
            };
            let _ = multivariant_playlist(&[(about.clone(), window.average_bandwidth())], "");
            let _ = dash::manifest(&[(about, &window)], "", u64::MAX);
            let (number, index) = window.next_part();
            let _ = window.reached(number, Some(index));
            let _ = window.reached(u64::MAX, Some(u32::MAX));
        }
    }
}
