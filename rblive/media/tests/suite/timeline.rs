//! The numbers that a [`Timeline`] gives, beside those of a plain count.

use bytes::Bytes;
use proptest::prelude::*;
use rblive_media::timeline::{Numbers, Timeline};

const FIRST: u64 = 500;
const TIMELINE: u64 = 7;
const SEGMENT_US: u64 = 2_000_000;
const TARGET_MS: u32 = 2000;
const ALL: u8 = 0b111;

/// What an encoder does before the next segment.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// It goes on.
    Go,
    /// It makes no segment for the time of so many.
    Hole(u64),
    /// Its clock begins at 0 again.
    StartOver,
    /// Its coding changes.
    Recode,
    /// A segment is lost, after it got a number.
    Lose,
}

fn steps() -> impl Strategy<Value = Vec<(Step, u8)>> {
    let step = prop_oneof![
        6 => Just(Step::Go),
        1 => (1..10_u64).prop_map(Step::Hole),
        1 => Just(Step::StartOver),
        1 => Just(Step::Recode),
        1 => Just(Step::Lose),
    ];
    // Of several renditions, these have the segment.
    let present = prop_oneof![3 => Just(ALL), 2 => 0..=ALL];
    prop::collection::vec((step, present), 1..60)
}

fn init(coding: u8) -> Bytes {
    Bytes::from(vec![coding; 3])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_of_one_rendition_counts(steps in steps()) {
        let timeline = Timeline::alone(FIRST, TIMELINE).rendition(1);
        let (mut next, mut own, mut us, mut coding) = (FIRST, TIMELINE, 0, 0);
        let (mut is_first, mut breaks) = (true, false);
        for (step, _) in steps {
            match step {
                Step::Go => {}
                // Without other renditions, nobody has segments in the hole.
                Step::Hole(segments) => us += segments * SEGMENT_US,
                Step::StartOver => {
                    breaks |= us > SEGMENT_US;
                    us = 0;
                }
                Step::Recode => (coding, breaks) = (coding + 1, true),
                Step::Lose => {
                    own += u64::from(breaks && !is_first);
                    timeline.passthrough(us..us + SEGMENT_US, &init(coding), TARGET_MS);
                    timeline.hole();
                    (next, is_first, breaks, us) = (next + 1, false, true, us + SEGMENT_US);
                    continue;
                }
            }
            let discontinuity = breaks && !is_first;
            own += u64::from(discontinuity);
            let numbers = timeline.passthrough(us..us + SEGMENT_US, &init(coding), TARGET_MS);
            prop_assert_eq!(numbers, Numbers { sequence: next, timeline: own, discontinuity });
            (next, is_first, breaks, us) = (next + 1, false, false, us + SEGMENT_US);
            prop_assert_eq!(timeline.next_number(), next);
        }
    }

    /// Encoders of several renditions do the same, but each of them may leave segments out.
    #[test]
    fn several_renditions_have_numbers_in_common(
        steps in steps(),
        // The encoder decides how long its segments are, not the settings.
        target_ms in prop::sample::select(vec![TARGET_MS / 3, TARGET_MS, 2 * TARGET_MS]),
    ) {
        let shared = Timeline::shared(FIRST, TIMELINE);
        let renditions = [1, 2, 3].map(|id| shared.rendition(id));
        // Of each rendition, the timeline and the time of the newest segment.
        let mut own = [(None, 0); 3];
        let (mut next, mut newest, mut us, mut coding) = (FIRST, TIMELINE, 0, 0);
        for (round, (step, present)) in steps.into_iter().enumerate() {
            let mut present = if round == 0 || present == 0 { ALL } else { present };
            match step {
                _ if round == 0 => {}
                Step::Go => {}
                Step::Hole(segments) => (us, next) = (us + segments * SEGMENT_US, next + segments),
                Step::StartOver if own.iter().all(|(_, us)| *us > SEGMENT_US) => {
                    (us, newest, present) = (0, newest + 1, ALL);
                }
                Step::StartOver => {}
                Step::Recode => (coding, newest, present) = (coding + 1, newest + 1, ALL),
                Step::Lose => {
                    present = ALL & !(1 << (round % 3));
                    renditions[round % 3].hole();
                }
            }
            // Any of them may be first.
            for at in (0..3).map(|at| (at + round) % 3).filter(|at| present & 1 << at != 0) {
                // Their key frames are not at exactly the same times.
                let begin = us + at as u64 * 40_000;
                let numbers = renditions[at].passthrough(begin..us + SEGMENT_US, &init(coding), target_ms);
                let discontinuity = own[at].0.is_some_and(|own| own < newest);
                prop_assert_eq!(numbers, Numbers { sequence: next, timeline: newest, discontinuity });
                own[at] = (Some(newest), us);
            }
            (next, us) = (next + 1, us + SEGMENT_US);
        }
        prop_assert!(!shared.is_uneven());
        prop_assert_eq!(shared.next_number(), next);
    }
}

/// An encoder that starts over may be at times of which the rendition has some already.
#[test]
fn times_that_overlap_after_a_hole_are_a_break() {
    let rendition = Timeline::shared(FIRST, TIMELINE).rendition(1);
    let passthrough = |begin_us: u64| {
        rendition.passthrough(begin_us..begin_us + SEGMENT_US, &init(0), TARGET_MS).discontinuity
    };
    assert!(!passthrough(0) && !passthrough(SEGMENT_US));
    rendition.hole();
    assert!(!passthrough(2 * SEGMENT_US - 100_000), "times are not exact");
    rendition.hole();
    assert!(passthrough(5 * SEGMENT_US / 2));
}
