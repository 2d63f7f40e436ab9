//! Streams with several renditions.

use testkit::{LONG, awaited};

use crate::lab::{Lab, NAME};

const TIMELINE: u64 = 7;

fn text(lab: &Lab, file: &str) -> (u16, String) {
    let got = lab.get(&format!("/live/{NAME}/{file}"));
    (got.status, String::from_utf8(got.body).unwrap())
}

/// Waits until a file has this text.
fn with(lab: &Lab, file: &str, wanted: &str) -> String {
    awaited(LONG, &format!("{wanted} in {file}"), || {
        let (status, text) = text(lab, file);
        (status == 200 && text.contains(wanted)).then_some(text)
    })
}

/// Writes segments of two renditions, which are described.
fn both(lab: &Lab, numbers: std::ops::Range<u64>) {
    for number in numbers {
        lab.describe_renditions(&[1, 2]);
        for part in [0, 1] {
            lab.part_of(1, TIMELINE, number, part, 2000);
            lab.part_of(2, TIMELINE, number, part, 500);
        }
    }
}

#[test]
fn renditions_have_numbers_dates_and_durations_in_common() {
    let lab = Lab::plain();
    both(&lab, 10..14);
    let dated = |file: &str| {
        let list = with(&lab, file, "\n13.m4s\n");
        let lines = list.lines().filter(|line| {
            ["#EXT-X-PROGRAM", "#EXTINF", "#EXT-X-TARGET", "#EXT-X-MEDIA-S", "#EXT-X-DISCON"]
                .iter()
                .any(|tag| line.starts_with(tag))
        });
        (lines.map(str::to_owned).collect::<Vec<_>>(), list)
    };
    let ((first, list), (second, _)) = (dated("1/media.m3u8"), dated("2/media.m3u8"));
    assert_eq!(first, second);
    assert!(
        list.contains("#EXT-X-RENDITION-REPORT:URI=\"../2/media.m3u8\",LAST-MSN=13,LAST-PART=1"),
        "{list}"
    );
    let all = with(&lab, "index.m3u8", "2/media.m3u8");
    assert_eq!(all.matches("#EXT-X-STREAM-INF:").count(), 2, "{all}");
    assert!(all.contains("RESOLUTION=640x360,FRAME-RATE=25.000\n1/media.m3u8\n"), "{all}");
    assert!(all.contains("RESOLUTION=320x180,FRAME-RATE=25.000\n2/media.m3u8\n"), "{all}");
    let manifest = with(&lab, "manifest.mpd", "<Representation id=\"2\"");
    assert_eq!(manifest.matches("<Period ").count(), 1, "{manifest}");
    assert_eq!(manifest.matches("<AdaptationSet ").count(), 1, "{manifest}");
    let offset = manifest.split("presentationTimeOffset=\"").skip(1);
    let offsets: Vec<_> = offset.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(offsets.len() == 2 && offsets[0] == offsets[1], "{manifest}");
}

#[test]
fn a_new_timeline_is_one_period_and_one_discontinuity() {
    let lab = Lab::plain();
    both(&lab, 10..12);
    for number in 12..14 {
        lab.describe_renditions(&[1, 2]);
        for (part, id) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            lab.part_of(id, TIMELINE + 1, number, part, 1000);
        }
    }
    for id in [1, 2] {
        let list = with(&lab, &format!("{id}/media.m3u8"), "\n13.m4s\n");
        let (before, after) = list.split_once("#EXT-X-DISCONTINUITY\n").unwrap();
        assert!(before.contains("\n11.m4s\n") && after.contains("\n12.m4s\n"), "{list}");
        assert!(list.contains(&format!("#EXT-X-DISCONTINUITY-SEQUENCE:{TIMELINE}\n")), "{list}");
    }
    let manifest = with(&lab, "manifest.mpd", "n=\"12\"");
    assert_eq!(manifest.matches("<Period ").count(), 2, "{manifest}");
    assert_eq!(manifest.matches("<Representation ").count(), 4, "{manifest}");
}

#[test]
fn a_rendition_that_leaves_can_be_played_out_and_returns() {
    let lab = Lab::plain();
    both(&lab, 10..13);
    with(&lab, "2/media.m3u8", "\n12.m4s\n");
    lab.describe_renditions(&[1]);
    let waiting = std::thread::scope(|scope| {
        let waits = scope.spawn(|| text(&lab, "2/media.m3u8?_HLS_msn=13"));
        for part in [0, 1] {
            lab.part_of(1, TIMELINE, 13, part, 1000);
        }
        waits.join().unwrap()
    });
    assert_eq!(waiting.0, 404, "a player changes to another rendition: {}", waiting.1);
    with(&lab, "1/media.m3u8", "\n13.m4s\n");
    let all = with(&lab, "index.m3u8", "1/media.m3u8");
    assert!(!all.contains("2/media.m3u8"), "{all}");
    assert_eq!(text(&lab, "2/media.m3u8").0, 404);
    let got = lab.get(&format!("/live/{NAME}/2/12.m4s"));
    assert_eq!((got.status, got.body.len()), (200, 1000), "what a player has in its list is still there");
    assert_eq!(lab.get(&format!("/live/{NAME}/2/14.0.m4s")).status, 404);
    both(&lab, 15..17);
    let list = with(&lab, "2/media.m3u8", "\n16.m4s\n");
    assert!(list.contains("#EXT-X-MEDIA-SEQUENCE:10\n") && !list.contains("DISCONTINUITY\n"), "{list}");
    assert_eq!(list.matches("#EXT-X-GAP\n").count(), 2, "13 and 14: {list}");
    assert!(with(&lab, "index.m3u8", "2/media.m3u8").contains("1/media.m3u8"));
}

#[test]
fn the_list_of_renditions_waits_for_those_that_are_announced() {
    let lab = Lab::plain();
    lab.describe_renditions(&[1, 2]);
    while lab.get("/ready").status != 200 {}
    let (status, all) = std::thread::scope(|scope| {
        let waits = scope.spawn(|| text(&lab, "index.m3u8"));
        for id in [1, 2] {
            for part in [0, 1] {
                lab.part_of(id, TIMELINE, 0, part, 1000);
            }
        }
        waits.join().unwrap()
    });
    assert_eq!((status, all.matches("#EXT-X-STREAM-INF:").count()), (200, 2), "{all}");
}
