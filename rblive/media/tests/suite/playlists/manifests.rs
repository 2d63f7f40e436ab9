//! DASH manifests, read by an XML parser.

use rblive_media::dash::manifest;
use rblive_media::rendition::Rendition;
use rblive_media::window::{LiveWindow, NewPart};
use roxmltree::{Document, Node};

use super::parsed::{part, renditions, window};

fn all<'a>(node: Node<'a, 'a>, name: &str) -> Vec<Node<'a, 'a>> {
    node.descendants().filter(|own| own.has_tag_name(("urn:mpeg:dash:schema:mpd:2011", name))).collect()
}

#[test]
fn a_manifest_has_a_period_for_each_discontinuity_and_every_segment_once() {
    let windows: Vec<LiveWindow<()>> = (0..3).map(|_| window(100, 5)).collect();
    let streams: Vec<(Rendition, &LiveWindow<()>)> =
        renditions().into_iter().map(|(own, _)| own).zip(&windows).collect();
    let text = manifest(&streams, "?token=a&b", 1_760_000_300_000_000_000).expect("segments");
    let document = Document::parse(&text).expect("XML");
    let mpd = document.root_element();
    assert_eq!(mpd.attribute("type"), Some("dynamic"));
    assert_eq!(mpd.attribute("minimumUpdatePeriod"), Some("PT1.000000S"));
    let periods = all(mpd, "Period");
    assert_eq!(periods.len(), 2, "{text}");
    for (period, numbers) in periods.into_iter().zip([100..102_u64, 102..105]) {
        assert_eq!(all(period, "AdaptationSet").len(), 2);
        assert_eq!(all(period, "Representation").len(), 3);
        for template in all(period, "SegmentTemplate") {
            assert_eq!(template.attribute("startNumber"), Some(numbers.start.to_string().as_str()));
            assert!(
                template.attribute("media").is_some_and(|media| media.ends_with("/$Number$.m4s?token=a&b"))
            );
            let times: Vec<u64> =
                all(template, "S").iter().map(|s| s.attribute("t").unwrap().parse().unwrap()).collect();
            assert_eq!(times, numbers.clone().map(|number| number * 2_000_000).collect::<Vec<_>>());
        }
    }
    let video = all(mpd, "Representation")[0];
    let attributes = ["width", "height", "codecs", "frameRate"].map(|name| video.attribute(name));
    assert_eq!(attributes, [Some("1920"), Some("1080"), Some("avc1.64001f"), Some("29970/1000")]);
}

#[test]
fn segments_begin_with_a_key_frame_where_the_manifest_says_so() {
    let (about, good) = (renditions().remove(0).0, window(100, 5));
    for index in [0, 1] {
        let mut own = good.clone();
        own.push(NewPart { independent: false, last: true, ..part(106, index, false) });
        own.push(NewPart { last: true, ..part(107, 0, false) });
        let text = manifest(&[(about.clone(), &own)], "", 1_760_000_300_000_000_000).expect("segments");
        let document = Document::parse(&text).expect("XML");
        let sets = all(document.root_element(), "AdaptationSet");
        let said: Vec<_> = sets.iter().map(|set| set.attribute("startWithSAP")).collect();
        assert_eq!(said, [Some("1"), if index == 0 { None } else { Some("1") }], "{text}");
    }
}

#[test]
fn a_stream_without_a_whole_segment_has_no_manifest() {
    let empty = LiveWindow::<()>::new(1_000_000, 1_000_000);
    assert_eq!(manifest(&[(renditions().remove(0).0, &empty)], "", 0), None);
    assert_eq!(manifest::<()>(&[], "", 0), None);
}
