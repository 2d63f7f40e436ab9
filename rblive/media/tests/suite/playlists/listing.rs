//! Which of the held segments the playlists have, and the numbers of timelines.

use rblive_media::hls::MediaPlaylist;
use rblive_media::rendition::Container;
use rblive_media::window::{LiveWindow, NewPart, Pushed};

use super::rules::{Read, check, check_after};
use super::windows::playlist;

/// A segment of one part and a second, of a timeline by the source's count.
fn second(sequence: u64, timeline: Option<u64>, discontinuity: bool) -> NewPart<u64> {
    NewPart {
        sequence,
        index: 0,
        start_us: sequence * 1_000_000,
        duration_us: 1_000_000,
        produced_ns: 1_760_000_000_000_000_000 + sequence * 1_000_000_000,
        independent: true,
        discontinuity,
        timeline,
        last: true,
        bytes: 1000,
        init: 1,
        data: sequence,
    }
}

/// Removes what a ring with room for so many segments does not hold after segment `newest`.
fn release(window: &mut LiveWindow<u64>, newest: u64, room: u64) {
    let age = |data: &u64| (newest + 1 - data) as f64 / room as f64;
    window.release(|data| Some(age(data)).filter(|age| *age <= 1.0));
}

fn numbers(window: &LiveWindow<u64>) -> Vec<u64> {
    window.segments().map(|segment| segment.number).collect()
}

#[test]
fn a_removed_segment_stays_for_its_duration_and_that_of_the_longest_list() {
    for (room, least) in [(40, 6), (20, 6), (16, 6), (12, 4), (10, 3), (8, 3)] {
        let mut window = LiveWindow::new(1_000_000, 1_000_000);
        let (mut longest, mut removed) = (0, Vec::new());
        for number in 0..200 {
            let before = numbers(&window);
            window.push(second(number, None, false));
            release(&mut window, number, room);
            let listed = numbers(&window);
            assert_eq!(listed, (listed[0]..=number).collect::<Vec<_>>());
            assert!(number < least || listed.len() as u64 >= least, "{least} target durations stay listed");
            longest = longest.max(listed.len() as u64);
            removed.extend(before.iter().filter(|own| **own < listed[0]).map(|own| (*own, number)));
            for (own, at) in &removed {
                let is_due = number - at <= 1 + longest;
                assert!(!is_due || window.segment(*own).is_some(), "{own}, removed at {at}, at {number}");
            }
            assert!(number < room || window.segment(number - room).is_none(), "what is gone is forgotten");
        }
        assert!(removed.len() > 150 && longest >= room * 2 / 5, "{room}: {longest}");
        assert!(!window.window_too_short(), "{room} segments are enough");
    }
}

/// A ring that is too small for the first segments of a stream gives its place to a larger one.
#[test]
fn a_ring_that_was_too_small_is_not_complained_of_once_there_is_another_one() {
    let mut window = LiveWindow::new(1_000_000, 1_000_000);
    for number in 0..40 {
        if number == 3 {
            assert!(window.window_too_short());
            window.on_new_source();
        }
        window.push(second(number, None, false));
        let age = |first: u64, newest: u64, room: u64| {
            let age = (newest + 1 - first) as f64 / room as f64;
            (age < 1.0).then_some(age)
        };
        window.release(|own| if *own < 3 { age(*own, number.min(2), 4) } else { age(*own, number, 40) });
        assert!(number < 3 || !window.window_too_short(), "{number}");
    }
}

#[test]
fn a_ring_that_is_too_small_lists_three_target_durations_and_says_so() {
    for (room, listed) in [(6, 3), (5, 3), (4, 3), (3, 3), (2, 2)] {
        let mut window = LiveWindow::new(1_000_000, 1_000_000);
        for number in 0..50 {
            window.push(second(number, None, false));
            release(&mut window, number, room);
        }
        assert_eq!(numbers(&window), (50 - listed..50).collect::<Vec<_>>(), "{room}");
        assert!(window.window_too_short());
    }
}

#[test]
fn an_ended_stream_keeps_its_list() {
    let mut window = LiveWindow::new(1_000_000, 1_000_000);
    for number in 0..18 {
        window.push(second(number, None, false));
        release(&mut window, number, 40);
    }
    let before = numbers(&window);
    window.end();
    release(&mut window, 30, 40);
    assert_eq!(numbers(&window), before);
}

#[test]
fn a_server_that_starts_later_numbers_timelines_alike() {
    // The first server sees all of it; another one starts at each segment.
    let source: Vec<_> = (0..30_u64).map(|own| (own, 1000 + own / 7, own % 7 == 0 && own > 0)).collect();
    let mut whole = LiveWindow::new(1_000_000, 1_000_000);
    let mut before = 0;
    for (at, (number, timeline, discontinuity)) in source.iter().copied().enumerate() {
        assert_eq!(whole.push(second(number, Some(timeline), discontinuity)), Pushed::Listed);
        release(&mut whole, number, 5);
        assert!(whole.discontinuity_sequence() >= before);
        before = whole.discontinuity_sequence();
        let mut late = LiveWindow::new(1_000_000, 1_000_000);
        for (number, timeline, discontinuity) in &source[at.saturating_sub(2)..=at] {
            late.push(second(*number, Some(*timeline), *discontinuity));
        }
        for own in late.segments() {
            assert_eq!(whole.segment(own.number).map(|own| own.timeline), Some(own.timeline));
        }
        assert!(late.discontinuity_sequence() >= before);
    }
}

#[test]
fn a_source_that_returns_goes_on_with_higher_numbers_of_timelines() {
    let mut window = LiveWindow::new(1_000_000, 1_000_000);
    for number in 0..3 {
        window.push(second(number, Some(50), false));
    }
    window.push(second(3, Some(51), true));
    assert_eq!(window.discontinuity_sequence(), 50);
    window.on_new_source();
    window.push(second(900, Some(80), false));
    assert_eq!((window.first_number(), window.discontinuity_sequence()), (900, 79));
    assert!(window.segments().next().unwrap().discontinuity);
    // A source whose numbers are lower than it should have.
    window.on_new_source();
    window.push(second(950, Some(3), false));
    assert_eq!((window.first_number(), window.discontinuity_sequence()), (950, 80));
}

#[test]
fn a_discontinuity_whose_first_part_was_lost_is_not_forgotten() {
    let mut window = LiveWindow::new(1_000_000, 1_000_000);
    for number in 0..3 {
        window.push(second(number, Some(50), false));
    }
    window.push(NewPart { index: 1, ..second(3, Some(51), false) });
    window.push(second(4, Some(51), false));
    let breaks: Vec<_> = window.segments().map(|own| (own.discontinuity, own.timeline)).collect();
    assert_eq!(breaks, [(false, 50), (false, 50), (false, 50), (true, 51), (false, 51)]);
    // Two of them in a hole: the list begins anew.
    window.push(second(8, Some(53), true));
    assert_eq!((numbers(&window), window.discontinuity_sequence()), (vec![8], 52));
    // A long hole of a timeline that goes on.
    window.push(second(800, Some(53), false));
    let first = window.segments().next().unwrap();
    assert_eq!((first.number, first.discontinuity, first.timeline), (800, false, 53));
}

fn read(window: &LiveWindow<u64>) -> Read {
    let reports = &[];
    check(
        &MediaPlaylist { container: Container::Cmaf, low_latency: true, skip: false, query: "", reports }
            .write(window),
    )
}

/// A segment of five parts, of which these are so long, in microseconds.
fn in_parts(window: &mut LiveWindow<u64>, sequence: u64, durations: [u32; 5]) -> Vec<Read> {
    let (mut start_us, mut lists) = (sequence * 1_000_000, Vec::new());
    for (index, duration_us) in (0..).zip(durations) {
        let part =
            NewPart { index, start_us, duration_us, last: index == 4, ..second(sequence, None, false) };
        assert_eq!(window.push(NewPart { independent: index == 0, ..part }), Pushed::Listed);
        start_us += u64::from(duration_us);
        lists.push(read(window));
    }
    lists
}

#[test]
fn the_length_of_parts_is_announced_once() {
    let mut window = LiveWindow::new(1_000_000, 200_000);
    // The first segment tells how long the frames of this stream are.
    in_parts(&mut window, 0, [250_000, 250_000, 200_000, 150_000, 150_000]);
    let mut old = read(&window);
    assert_eq!(old.part_target_us, 250_000);
    let even = [200_000; 5];
    for (sequence, durations) in [(1, even), (2, [200_000, 200_000, 600_000, 200_000, 200_000]), (3, even)] {
        for new in in_parts(&mut window, sequence, durations) {
            if new.segments.contains_key(&sequence) || sequence != 2 {
                check_after(&old, &new);
            }
            assert_eq!(new.part_target_us, 250_000);
            old = new;
        }
    }
    // The segment with the long part has no parts.
    assert_eq!(old.parts.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(old.segments[&2].us, 1_400_000);
}

#[test]
fn segments_are_independent_while_all_of_them_begin_with_a_key_frame() {
    let mut window = LiveWindow::new(1_000_000, 1_000_000);
    window.push(second(0, None, false));
    assert!(read(&window).independent);
    window.push(NewPart { independent: false, ..second(1, None, false) });
    let list = read(&window);
    assert!(!list.independent && list.start_us == Some(2_000_000), "players begin with the first one");
    for number in 2..20 {
        window.push(second(number, None, false));
        release(&mut window, number, 12);
    }
    assert!(read(&window).independent && read(&window).start_us.is_none(), "the segment has left the list");
}

/// What comes after the end is not there yet: who begins close to it stands still until the next segment.
#[test]
fn players_that_join_begin_three_durations_before_the_end() {
    let mut window = LiveWindow::new(1_000_000, 1_000_000);
    for number in 0..10 {
        window.push(NewPart { independent: ![2, 7].contains(&number), ..second(number, None, false) });
        // Of the first ones there are not so many, and at the end of segment 9 the third one from the end has no key frame.
        let start = [None, None, Some(3), Some(3), Some(4), Some(3), Some(3), Some(3), Some(3), Some(4)];
        for low_latency in [false, true] {
            let list = check(&playlist(low_latency).write(&window));
            assert_eq!(list.start_us.map(|us| us / 1_000_000), start[number as usize], "{number}");
        }
    }
}

#[test]
fn the_date_is_that_of_the_part_that_waited_least() {
    let mut window = LiveWindow::new(1_000_000, 200_000);
    let begin_ns = 1_760_000_000_000_000_000;
    for (index, late_ns) in [(0, 900_000_000), (1, 700_000_000), (2, 0), (3, 300_000_000), (4, 0)] {
        let end_us = u64::from(index + 1) * 200_000;
        let (start_us, produced_ns) = (end_us - 200_000, begin_ns + end_us * 1000 + late_ns);
        let part = NewPart { index, start_us, duration_us: 200_000, produced_ns, ..second(0, None, false) };
        window.push(NewPart { last: index == 4, ..part });
    }
    assert_eq!(window.segments().next().map(|own| own.wall_ns), Some(begin_ns));
    // A list has it now.
    window.push(NewPart { produced_ns: begin_ns, ..second(1, None, false) });
    assert_eq!(window.segments().next_back().map(|own| own.wall_ns), Some(begin_ns + 1_000_000_000));
}
