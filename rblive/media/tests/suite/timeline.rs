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
                    timeline.break_off();
                    (is_first, breaks, us) = (false, true, us + SEGMENT_US);
                    continue;
                }
            }
            let discontinuity = breaks && !is_first;
            own += u64::from(discontinuity);
            let numbers = timeline.passthrough(us..us + SEGMENT_US, &init(coding), TARGET_MS);
            prop_assert_eq!(numbers, Numbers { sequence: next, timeline: own, discontinuity });
            timeline.written(numbers.sequence);
            (next, is_first, breaks, us) = (next + 1, false, false, us + SEGMENT_US);
            prop_assert_eq!(timeline.next_number(), next);
        }
    }

    /// Encoders of several renditions do the same, but each of them may leave segments out.
    #[test]
    fn several_renditions_have_numbers_in_common(steps in steps()) {
        let shared = Timeline::shared(FIRST, TIMELINE);
        let renditions = [1, 2, 3].map(|id| shared.rendition(id));
        let mut timelines = [None; 3];
        let (mut next, mut newest, mut us, mut coding, mut before) = (FIRST, TIMELINE, 0, 0, 0);
        for (round, (step, mut present)) in steps.into_iter().enumerate() {
            if round == 0 {
                present = ALL;
            }
            let all_go_on = before == ALL && round > 0;
            match step {
                Step::Hole(segments) if round > 0 => (us, next) = (us + segments * SEGMENT_US, next + segments),
                Step::StartOver if all_go_on && us > SEGMENT_US => (us, newest, present) = (0, newest + 1, ALL),
                Step::Recode if all_go_on => (coding, newest, present) = (coding + 1, newest + 1, ALL),
                _ => {}
            }
            for at in 0..3 {
                // Any of them may be first.
                let own = (at + round) % 3;
                if present & 1 << own == 0 {
                    continue;
                }
                // Their key frames are not at exactly the same times.
                let begin = us + own as u64 * 40_000;
                let numbers = renditions[own].passthrough(begin..us + SEGMENT_US, &init(coding), TARGET_MS);
                let discontinuity = timelines[own].is_some_and(|own| own < newest);
                prop_assert_eq!(numbers, Numbers { sequence: next, timeline: newest, discontinuity });
                renditions[own].written(numbers.sequence);
                timelines[own] = Some(newest);
            }
            (next, us, before) = (next + 1, us + SEGMENT_US, present);
        }
        prop_assert!(!shared.is_uneven());
    }
}
