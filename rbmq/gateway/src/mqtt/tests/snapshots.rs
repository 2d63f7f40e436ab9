//! Snapshots of the journal that are written in steps, while clients go on.

use std::collections::BTreeMap;

use super::disk::{retain, retained};
use super::journal::{Kept, connack, publish_as, release};
use super::*;

/// The sessions that are away.
const AWAY: [&str; 3] = ["a", "b", "c"];

/// A client that changes something in each round, and what has to be there.
struct Round {
    site: Site,
    publisher: ConnId,
    messages: Vec<String>,
    retained: BTreeMap<String, String>,
    /// The newest session, which has come while others were written.
    last: Option<u16>,
}

impl Round {
    fn new(kept: &Kept) -> Self {
        let mut site = kept.start();
        for id in AWAY {
            let conn = site.client(Hello::lasting(V5, id));
            site.subscribe(conn, "r/#", 1);
            site.lose(conn);
        }
        // A snapshot of some steps.
        for number in 0..40 {
            let conn = site.client(Hello::lasting(V5, &format!("quiet{number}")));
            site.subscribe(conn, "none", 1);
            site.lose(conn);
        }
        let publisher = site.plain(V5, "p");
        Self { site, publisher, messages: Vec::new(), retained: BTreeMap::new(), last: None }
    }

    fn change(&mut self, number: u16) {
        let (topic, payload) = (format!("r/{}", number % 7), number.to_string());
        let payload = if number.is_multiple_of(5) { String::new() } else { payload };
        let publish = Publish { retain: true, ..message(&topic, 1, &payload) };
        assert_eq!(
            publish_as(&mut self.site, self.publisher, number, publish),
            [format!("PUBACK #{number} 00")]
        );
        self.messages.push(payload.clone());
        match payload.is_empty() {
            true => _ = self.retained.remove(&topic),
            false => _ = self.retained.insert(topic, payload),
        }
        if number.is_multiple_of(3) {
            // The one before ends.
            if let Some(last) = self.last.replace(number) {
                let conn = self.site.client(Hello::new(V5, &format!("new{last}")));
                self.site.lose(conn);
            }
            let conn = self.site.client(Hello::lasting(V5, &format!("new{number}")));
            self.site.subscribe(conn, "none", 1);
            self.site.lose(conn);
        }
    }

    fn check(&self, site: &mut Site) {
        for id in AWAY {
            let conn = site.hello(Hello::lasting(V5, id));
            connack(site, conn, " present");
            let got: Vec<String> = site.got(conn).iter().map(|word| payload_of(word)).collect();
            assert_eq!(got, self.messages, "{id}");
            site.lose(conn);
        }
        let reader = site.plain(V311, "reader");
        let got = site.subscribe_with(reader, 0, &[("r/#", 0)]);
        let found: BTreeMap<String, String> = { got.iter() }
            .filter(|word| word.starts_with("PUBLISH"))
            .map(|word| (word.split(' ').nth(1).unwrap_or_default().to_owned(), payload_of(word)))
            .collect();
        assert_eq!(found, self.retained);
        if let Some(last) = self.last {
            let conn = site.hello(Hello::lasting(V5, &format!("new{last}")));
            connack(site, conn, " present");
            site.lose(conn);
        }
    }
}

/// What is behind the packet id of a PUBLISH of QoS 1, or behind `retain` of one of QoS 0.
fn payload_of(word: &str) -> String {
    let rest = word.split_once(" #").map(|(_, rest)| rest.split_once(' ').map_or("", |(_, payload)| payload));
    rest.unwrap_or_else(|| word.split(' ').next_back().unwrap_or_default()).to_owned()
}

#[test]
fn a_crash_between_any_two_pieces_loses_nothing() {
    let mut within = 0;
    for changes in 1..60 {
        // Each step writes one session or message, or as much as has changed.
        let mut kept = Kept::with(Settings::default(), 1 << 10);
        kept.piece_bytes = 1;
        let mut round = Round::new(&kept);
        (1..=changes).for_each(|number| round.change(number));
        within += usize::from(round.site.0.protocol.snapshot.is_some());
        let needed = round.site.0.protocol.journal.as_ref().expect("a journal").needed_from();
        let unused = Mqtt::new(Settings::default(), Clock { at: Instant::now(), unix_ms: 0 }, 0);
        round.site.0.protocol = unused;
        // Also if what is before the last complete one was removed.
        for first in [needed, 0] {
            kept.first = first;
            round.check(&mut kept.start());
        }
    }
    assert!(within > 9, "{within} of them died within a snapshot");
}

#[test]
fn what_is_before_a_snapshot_in_steps_is_removed_and_not_missed() {
    let mut kept = Kept::with(Settings::default(), 2 << 20);
    kept.piece_bytes = 150_000;
    let mut site = kept.start();
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.subscribe(subscriber, "t/1", 1);
    site.lose(subscriber);
    let publisher = site.plain(V5, "p");
    let mut within = 0;
    for number in (0..3).flat_map(|_| 0..40) {
        retain(&mut site, publisher, number..number + 1);
        within += usize::from(site.0.protocol.snapshot.is_some());
    }
    assert!(within > 10, "{within} of the changes were within a snapshot");
    // What has the last messages, and a rest of a segment.
    while site.0.protocol.snapshot.is_some() {
        site.got(publisher);
    }
    release(&mut site, publisher, 14 << 20);
    drop(site);
    let mut site = kept.start();
    assert_eq!(retained(&mut site), Vec::from_iter(0..40));
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    connack(&mut site, subscriber, " present");
    assert_eq!(site.got(subscriber).len(), 3);
}
