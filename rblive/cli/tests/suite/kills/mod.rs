//! Encoder, nodes and their connections are killed (`kill -9`) at random moments, and start again, while two viewers watch: one through
//! a tree of nodes, one beside it. Everything that the viewers see is checked. Over shared memory they watch a stream with one rendition,
//! over TCP the two renditions of a ladder, one each.
//!
//! ```text
//!   ffmpeg ──RTMP──▶ ingest ──▶ inner ──▶ far ──▶ viewer
//!                      └────────────────▶ near ─▶ viewer
//! ```
//!
//! `KILLS=100` sets the number of rounds for each transport, `KILL_SEED=7` repeats the choices of a run.

mod encoder;
mod media;
mod nodes;
#[path = "../../../../media/tests/suite/playlists/rules.rs"]
#[allow(dead_code, reason = "checks of playlists as text, which other tests use with a track")]
mod rules;
mod viewer;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use encoder::{Encoder, Film};
use nodes::{NODES, Nodes};
use testkit::{Random, has};
use viewer::{Addresses, Seen, Viewer};

/// The time limits of nodes are longer than this.
const STANDSTILL: Duration = Duration::from_secs(8);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Kills and restarts what the seed chooses, and returns what each kind of kill looked like to each viewer.
fn rounds(transport: &str, film: &Arc<Film>, random: &mut Random) -> BTreeMap<String, Seen> {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::start(folder.path(), transport);
    let has_ladder = transport == "tcp";
    let published: &[&str] = if has_ladder { &["hi", "lo"] } else { &["camera"] };
    let encoder = Encoder::start(film.clone(), nodes.encoders(), published);
    let addresses = Addresses::default();
    let watched = if has_ladder { ["ladder/2", "ladder/1"] } else { ["camera/1"; 2] };
    let viewers = [("far", watched[0]), ("near", watched[1])].map(|(node, rendition)| {
        Viewer::start(node, nodes.viewers(node), rendition, film.clone(), addresses.clone())
    });
    viewers.iter().for_each(|viewer| viewer.wait_for(4));
    let mut table = BTreeMap::new();
    let first = random.below(5);
    for round in first..first + number("KILLS", 5) {
        let victim = ["encoder", "ingest", "inner", "far", "near"][(round % 5) as usize];
        let pauses = [(); 2].map(|()| Duration::from_millis(random.below(1500)));
        std::thread::sleep(pauses[0]);
        let before = viewers.each_ref().map(Viewer::seen);
        match NODES.iter().find(|node| node.name == victim) {
            Some(_) => nodes.restart(victim, pauses[1]),
            None => encoder.kill(),
        }
        viewers.iter().for_each(|viewer| viewer.wait_for(4));
        for (viewer, before) in viewers.iter().zip(before) {
            let seen = viewer.seen().since(&before);
            say(&format!("{transport:4} {victim:7} killed, viewer of {:4} saw: {seen}", viewer.node));
            assert!(!seen.ended, "a stream that returns has not ended");
            let elsewhere = matches!((victim, viewer.node), ("inner" | "far", "near") | ("near", "far"));
            // A machine that stands still for long disturbs every connection.
            if elsewhere && seen.longest_wait < STANDSTILL {
                // A rendition that is late leaves the playlists, and players take the other one meanwhile.
                let seen = Seen { gone: if has_ladder { 0 } else { seen.gone }, ..seen.clone() };
                assert!(seen.is_undisturbed(), "{victim} is not on the way to {}: {seen}", viewer.node);
            }
            table
                .entry(format!("{victim}, viewer of {}", viewer.node))
                .or_insert_with(Seen::default)
                .add(&seen);
        }
    }
    viewers.into_iter().for_each(Viewer::stop);
    table
}

/// The film of both tests, which run side by side.
fn film() -> Arc<Film> {
    static FILM: Mutex<Weak<Film>> = Mutex::new(Weak::new());
    let mut film = FILM.lock().unwrap();
    film.upgrade().unwrap_or_else(|| {
        let made = Arc::new(Film::make());
        *film = Arc::downgrade(&made);
        made
    })
}

fn kills(transport: &str) {
    if !has("ffmpeg", "kills in front of viewers") {
        return;
    }
    let seed = number("KILL_SEED", u64::from(std::process::id()));
    say(&format!("KILL_SEED={seed}"));
    for (kill, seen) in rounds(transport, &film(), &mut Random::new(seed)) {
        say(&format!("{transport:4} | {kill:26} | {seen}"));
    }
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn what_viewers_see_of_kills() {
    kills("auto");
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn what_viewers_of_renditions_see_of_kills_over_tcp() {
    kills("tcp");
}
