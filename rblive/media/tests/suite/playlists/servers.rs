//! Servers that get one stream by different ways: an address has the same bytes at all of them, and for ever.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rblive_media::window::{LiveWindow, NewPart, Segment, SegmentState};

use super::cases;

/// One thing that happens. A part has a mask of the servers that do not get it.
#[derive(Debug, Clone)]
enum Step {
    /// The source writes a part: whether it is the segment's last one, and whether it lasts.
    Part { last: bool, lasts: bool, lost: u8 },
    /// The encoder is killed, and another one takes its place: the source ends the segment.
    Encoder { lost: u8 },
    /// The source is killed, perhaps in a segment, and begins again with so much higher numbers.
    Source(u64),
    /// The source goes on in another buffer with its next segment.
    Buffer,
    /// The source ends the stream, after its segment.
    End { lost: u8 },
    /// The servers of the mask have waited for a source for long enough.
    Over(u8),
    /// The servers of the mask are killed, and begin with what comes next.
    Server(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lost = prop_oneof![8 => Just(0), 1 => 0..4_u8];
    let part = (prop::bool::weighted(0.3), prop::bool::weighted(0.8), lost.clone());
    let step = prop_oneof![
        30 => part.prop_map(|(last, lasts, lost)| Step::Part { last, lasts, lost }),
        2 => lost.clone().prop_map(|lost| Step::Encoder { lost }),
        1 => (1..40_u64).prop_map(Step::Source),
        1 => Just(Step::Buffer),
        1 => lost.prop_map(|lost| Step::End { lost }),
        1 => (1..4_u8).prop_map(Step::Over),
        1 => (1..4_u8).prop_map(Step::Server),
    ];
    prop::collection::vec(step, 1..150)
}

#[derive(Default)]
struct Source {
    sequence: u64,
    index: u32,
    at_us: u64,
    timeline: u64,
    discontinuity: bool,
    written: u64,
}

impl Source {
    fn part(&mut self, last: bool, duration_us: u32) -> NewPart<u64> {
        let part = NewPart {
            sequence: self.sequence,
            index: self.index,
            start_us: self.at_us,
            duration_us,
            produced_ns: 1_700_000_000_000_000_000 + self.written * 200_000_000,
            independent: self.index == 0,
            discontinuity: std::mem::take(&mut self.discontinuity),
            timeline: Some(self.timeline),
            last,
            bytes: 1000,
            init: 0,
            data: self.written,
        };
        self.written += 1;
        self.at_us += u64::from(duration_us);
        (self.sequence, self.index) =
            if last { (self.sequence + 1, 0) } else { (self.sequence, self.index + 1) };
        part
    }

    /// Begins a timeline with the next segment.
    fn break_off(&mut self) {
        (self.timeline, self.discontinuity) = (self.timeline + 1, true);
    }
}

#[derive(Default)]
struct World {
    source: Source,
    servers: Vec<LiveWindow<u64>>,
    /// The data of each segment, and of each part, that a server had at an address.
    segments: BTreeMap<u64, Vec<u64>>,
    parts: BTreeMap<(u64, usize), u64>,
}

fn window() -> LiveWindow<u64> {
    LiveWindow::new(1_000_000, 200_000)
}

impl World {
    fn of(&mut self, mask: u8) -> impl Iterator<Item = &mut LiveWindow<u64>> {
        self.servers.iter_mut().enumerate().filter(move |(at, _)| mask >> at & 1 == 1).map(|(_, own)| own)
    }

    fn part(&mut self, last: bool, duration_us: u32, lost: u8) {
        let part = self.source.part(last, duration_us);
        self.of(!lost).for_each(|server| _ = server.push(part.clone()));
    }

    /// As ingest does: whatever ends a segment, its last part says so.
    fn end_segment(&mut self, lost: u8) {
        if self.source.index > 0 {
            self.part(true, 100_000, lost);
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            // The pieces of a file that passes have the duration at the first one.
            Step::Part { last, lasts, lost } => self.part(last, u32::from(lasts) * 200_000, lost),
            Step::Encoder { lost } => {
                self.end_segment(lost);
                self.source.break_off();
            }
            Step::Source(more) => {
                let source = &mut self.source;
                (source.sequence, source.index, source.at_us) = (source.sequence + more, 0, 0);
                source.break_off();
                self.of(!0).for_each(LiveWindow::on_new_source);
            }
            Step::Buffer => {
                self.end_segment(0);
                self.of(!0).for_each(LiveWindow::on_new_source);
            }
            Step::End { lost } => {
                self.end_segment(lost);
                self.of(!0).for_each(LiveWindow::end);
            }
            Step::Over(mask) => self.of(mask).for_each(LiveWindow::end),
            Step::Server(mask) => self.of(mask).for_each(|server| *server = window()),
        }
    }

    /// The servers' answer is the one that has been at the address before.
    fn check(&mut self) {
        for server in &self.servers {
            let numbers = server.segments().map(|own| own.number).min().unwrap_or(0)..server.next_number();
            let held = numbers.filter_map(|number| server.segment(number));
            for Segment { number, parts, state, .. } in held {
                let data: Vec<u64> = parts.iter().map(|part| part.data).collect();
                for (index, data) in data.iter().enumerate() {
                    let before = *self.parts.entry((*number, index)).or_insert(*data);
                    assert_eq!(before, *data, "part {index} of segment {number}");
                }
                if *state == SegmentState::Complete {
                    let before = self.segments.entry(*number).or_insert(data.clone());
                    assert_eq!(*before, data, "segment {number}");
                }
            }
        }
    }
}

fn run(steps: &[Step]) -> World {
    let servers = vec![window(), window()];
    let mut world =
        World { source: Source { timeline: 100, ..Source::default() }, servers, ..World::default() };
    for step in steps {
        world.apply(step);
        world.check();
    }
    world
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn an_address_has_the_same_bytes_at_all_servers_and_for_ever(steps in steps()) {
        run(&steps);
    }
}

/// A server that did not get the last part of a segment lists a gap, and not a shorter segment, whatever comes next.
#[test]
fn a_segment_whose_last_part_is_lost_is_a_gap() {
    let part = |last, lost| Step::Part { last, lasts: true, lost };
    let next = [
        vec![Step::Encoder { lost: 1 }, part(false, 0)],
        vec![Step::End { lost: 1 }],
        vec![Step::Over(1), Step::End { lost: 0 }],
        vec![Step::Part { last: true, lasts: false, lost: 1 }, part(false, 0)],
    ];
    for next in next {
        let steps = [vec![part(true, 0), part(false, 0), part(false, 0)], next].concat();
        let world = run(&steps);
        let states = |at: usize| world.servers[at].segment(1).map(|own| own.state);
        assert_eq!([0, 1].map(states), [Some(SegmentState::Gap), Some(SegmentState::Complete)], "{steps:?}");
    }
}
