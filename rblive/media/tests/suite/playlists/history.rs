//! Random histories of an encoder, a lossy way and a ring that overwrites.

use proptest::prelude::*;
use rblive_media::window::{LiveWindow, NewPart, Pushed, Reached, SegmentState};

use super::cases;
use super::rules::{Read, check_after};
use super::windows::check_window;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// The encoder writes a part: its duration, and whether it is the segment's last one.
    Part(u32, bool),
    /// A part is written and lost on its way.
    LosePart(u32, bool),
    /// Segments are lost.
    LoseSegments(u64),
    /// The encoder starts over with segment 0 and time 0.
    Restart,
    /// Another encoder takes over, with numbers and times of its own.
    TakeOver(u64),
    /// The encoder's clock jumps.
    Jump(u64),
    /// The ring holds this many parts from now on.
    Hold(usize),
    /// The codecs change.
    Init,
    /// The encoder closes the stream.
    End,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let part = (50_000..400_000_u32, prop::bool::weighted(0.25)).prop_map(|(us, last)| Step::Part(us, last));
    let lose = (50_000..400_000_u32, any::<bool>()).prop_map(|(us, last)| Step::LosePart(us, last));
    let step = prop_oneof![
        30 => part,
        1 => lose,
        1 => (1..40_u64).prop_map(Step::LoseSegments),
        1 => Just(Step::Restart),
        1 => (0..2_000_000_000_u64).prop_map(Step::TakeOver),
        1 => (0..10_000_000_u64).prop_map(Step::Jump),
        4 => (1..60_usize).prop_map(Step::Hold),
        1 => Just(Step::Init),
        1 => Just(Step::End),
    ];
    prop::collection::vec(step, 1..200)
}

/// The encoder.
#[derive(Default)]
struct Source {
    sequence: u64,
    index: u32,
    segment_us: u64,
    at_us: u64,
    wall_ns: u64,
    init: u32,
    discontinuity: bool,
    /// The number of the timeline, of a source that counts.
    timeline: Option<u64>,
    written: usize,
}

impl Source {
    /// Whether the segment might be longer than announced with another part after this one.
    fn is_long(&self, us: u32) -> bool {
        self.segment_us + u64::from(us) >= 1_000_000
    }

    fn part(&mut self, us: u32, last: bool) -> NewPart<usize> {
        self.wall_ns += u64::from(us) * 1000;
        self.timeline = self.timeline.map(|number| number + u64::from(self.discontinuity));
        let part = NewPart {
            sequence: self.sequence,
            index: self.index,
            start_us: self.at_us,
            duration_us: us,
            produced_ns: self.wall_ns,
            independent: self.index == 0,
            discontinuity: std::mem::take(&mut self.discontinuity),
            timeline: self.timeline,
            last,
            bytes: 1000,
            init: self.init,
            data: self.written,
        };
        self.written += 1;
        self.at_us += u64::from(us);
        self.segment_us += u64::from(us);
        (self.sequence, self.index, self.segment_us) =
            if last { (self.sequence + 1, 0, 0) } else { (self.sequence, self.index + 1, self.segment_us) };
        part
    }

    fn next_segment(&mut self) {
        (self.sequence, self.index, self.segment_us) = (self.sequence + u64::from(self.index > 0), 0, 0);
    }
}

fn apply(step: Step, source: &mut Source, window: &mut LiveWindow<usize>, held: &mut usize) {
    match step {
        Step::Part(us, last) => {
            let part = source.part(us, last || source.is_long(us));
            window.push(part);
        }
        Step::LosePart(us, last) => drop(source.part(us, last || source.is_long(us))),
        Step::LoseSegments(count) => {
            source.next_segment();
            source.sequence += count;
            source.at_us += count * 1_000_000;
        }
        Step::Restart => {
            source.next_segment();
            (source.sequence, source.at_us, source.discontinuity) = (0, 0, true);
        }
        Step::TakeOver(number) => {
            source.next_segment();
            (source.sequence, source.at_us) = (number, 0);
            source.timeline = source.timeline.map(|before| before + number);
            window.on_new_source();
        }
        Step::Jump(us) => {
            source.next_segment();
            (source.at_us, source.discontinuity) = (us, true);
        }
        Step::Hold(parts) => *held = parts,
        Step::Init => {
            source.next_segment();
            (source.init, source.discontinuity) = (source.init + 1, true);
        }
        Step::End => {
            source.next_segment();
            window.end();
        }
    }
    let oldest = source.written.saturating_sub(*held);
    let age = |data: &usize| (source.written - data) as f64 / *held as f64;
    window.release(|data| (*data >= oldest).then(|| age(data)));
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn playlists_of_any_history_follow_the_rules(steps in steps(), counts: bool) {
        let timeline = counts.then_some(1_700_000_000);
        let mut source = Source { wall_ns: 1_700_000_000_000_000_000, timeline, ..Source::default() };
        let (mut window, mut held) = (LiveWindow::new(1_000_000, 200_000), 50);
        let mut old: [Option<Read>; 2] = [None, None];
        for step in steps {
            apply(step, &mut source, &mut window, &mut held);
            let oldest = source.written.saturating_sub(held);
            for segment in window.segments() {
                prop_assert!(segment.parts.iter().all(|part| part.data >= oldest), "what is listed is held");
                prop_assert!(segment.state != SegmentState::Complete || !segment.parts.is_empty());
            }
            for (low_latency, old) in [false, true].into_iter().zip(&mut old) {
                let new = check_window(&window, low_latency);
                if let Some(old) = old {
                    check_after(old, &new);
                }
                *old = Some(new);
            }
        }
    }

    #[test]
    fn a_whole_history_has_every_part_at_its_place(cuts in prop::collection::vec((50_000..200_000_u32, any::<bool>()), 1..100)) {
        let (mut source, mut window) = (Source { wall_ns: 1 << 60, ..Source::default() }, LiveWindow::new(1_000_000, 200_000));
        for (us, last) in cuts {
            let next = window.next_part();
            prop_assert_eq!(next, (source.sequence, source.index));
            prop_assert_eq!(window.reached(next.0, Some(next.1)), Reached::NotYet);
            let part = source.part(us, last);
            prop_assert_eq!(window.push(part), Pushed::Listed);
            prop_assert_eq!(window.reached(next.0, Some(next.1)), Reached::Yes);
            prop_assert_eq!(window.newest_part(), Some(next));
        }
        let parts: Vec<usize> = window.segments().flat_map(|segment| &segment.parts).map(|part| part.data).collect();
        prop_assert_eq!(parts, (0..source.written).collect::<Vec<_>>());
    }
}

#[test]
fn a_waiting_request_is_bounded_and_a_part_after_the_last_one_is_in_the_next_segment() {
    let (mut source, mut window) = (Source::default(), LiveWindow::<usize>::new(1_000_000, 200_000));
    for _ in 0..5 {
        window.push(source.part(200_000, false));
    }
    window.push(source.part(200_000, true));
    assert_eq!(window.reached(0, None), Reached::Yes);
    assert_eq!(window.reached(0, Some(5)), Reached::Yes);
    assert_eq!(window.reached(0, Some(6)), Reached::NotYet, "it is part 0 of segment 1");
    assert_eq!(window.reached(1, None), Reached::NotYet);
    assert_eq!(window.reached(2, None), Reached::NotYet);
    assert_eq!(window.reached(3, None), Reached::TooFar);
    window.push(source.part(200_000, false));
    assert_eq!(window.reached(0, Some(6)), Reached::Yes);
}

/// Playlists do not have a part that is too long, nor those behind it: a player that asks for one of them waits for the segment.
#[test]
fn a_part_that_is_too_long_is_reached_with_its_segment() {
    let (mut source, mut window) = (Source::default(), LiveWindow::<usize>::new(1_000_000, 200_000));
    window.push(source.part(200_000, true));
    window.push(source.part(200_000, false));
    for _ in 0..3 {
        window.push(source.part(201_000, false));
        assert_eq!(window.reached(1, Some(0)), Reached::Yes);
        assert!((1..5).all(|part| window.reached(1, Some(part)) == Reached::NotYet));
        assert_eq!((window.newest_part(), window.next_part()), (Some((1, 0)), (1, 1)));
        let read = check_window(&window, true);
        assert_eq!((read.parts[&1].len(), read.hint), (1, None));
    }
    window.push(source.part(200_000, true));
    assert!((1..5).all(|part| window.reached(1, Some(part)) == Reached::Yes));
    assert_eq!(window.reached(1, Some(5)), Reached::NotYet);
    assert_eq!((window.newest_part(), window.next_part()), (Some((1, 4)), (2, 0)));
}
