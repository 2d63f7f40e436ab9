//! What the next owner of a topic finds, and where it goes on, wherever the one before it has stopped.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use locks::Mutex;
use seglog::{Log, SyncPolicy};

use super::super::super::cluster::{ClusterMember, Owner};
use super::super::super::session_key::SessionKey;
use super::super::archive::ArchiveRead;
use super::super::places::Place;
use super::*;

/// The map and the archive of some brokers.
#[derive(Default)]
pub(in super::super) struct World {
    claim: Mutex<Option<LogClaim>>,
    names: Mutex<HashMap<TopicName, Epoch>>,
    logs: Mutex<HashMap<Epoch, Arc<Kept>>>,
    is_down: Arc<AtomicBool>,
    /// It takes no claim.
    refuses: AtomicBool,
    /// The owner before archives up to here at the moment of the next claim.
    late: Mutex<Option<Position>>,
}

#[derive(Default)]
struct Kept {
    log: Mutex<(Range<Position>, Vec<u8>)>,
    is_down: Arc<AtomicBool>,
}

impl Cluster for World {
    fn owner(&self, _: &TopicName) -> Owner {
        Owner::Here { term: 1 }
    }

    fn members(&self) -> Vec<ClusterMember> {
        Vec::new()
    }

    fn log_claim(&self, _: &TopicName) -> Result<Option<LogClaim>, String> {
        Ok(*self.claim.lock())
    }

    fn claim_log(&self, _: &TopicName, claim: &LogClaim) -> Result<bool, String> {
        let mut known = self.claim.lock();
        let revision = known.map_or(0, |known| known.revision);
        let held = revision == claim.revision && !self.refuses.load(Ordering::Relaxed);
        if held {
            *known = Some(LogClaim { revision: revision + 1, ..*claim });
            if let Some(late) = self.late.lock().take() {
                let note = Note { term: 1, missing_below: 0, next_number: 4, places: vec![place(3, 80)] };
                let log = self.logs.lock().entry(claim.epoch).or_default().clone();
                log.append_with(late, &[], &note.encode(late)).unwrap();
            }
        }
        Ok(held)
    }
}

impl Archive for World {
    fn open(&self, log: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        let kept = Mutex::new((log.first..log.first, Vec::new()));
        let new = || Arc::new(Kept { log: kept, is_down: self.is_down.clone() });
        Ok(self.logs.lock().entry(log.epoch).or_insert_with(new).clone())
    }

    fn name_of(&self, _: &str, topic: &TopicName, new: Epoch) -> Result<Epoch, ArchiveError> {
        Ok(*self.names.lock().entry(topic.clone()).or_insert(new))
    }
}

impl ArchiveLog for Kept {
    fn kept(&self) -> Range<Position> {
        self.log.lock().0.clone()
    }

    fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.append_with(position, bytes, &[])
    }

    fn append_with(&self, position: Position, bytes: &[u8], note: &[u8]) -> Result<(), ArchiveError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(down("it is down"));
        }
        let mut kept = self.log.lock();
        (kept.0.end, kept.1) = (position + bytes.len() as u64, note.to_vec());
        Ok(())
    }

    fn note(&self) -> Vec<u8> {
        self.log.lock().1.clone()
    }

    fn read(&self, _: Position, _: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
        Ok(ArchiveRead::End)
    }
}

fn topic() -> TopicName {
    "k/a".parse().unwrap()
}

fn place(number: u32, position: Position) -> Place {
    let key = SessionKey { instance: 7, client: number.into() };
    Place { number, key, bid: 1, epoch: Epoch(9), position, lacks_below: 0 }
}

/// A broker whose take stops at a step.
struct Broker<'a> {
    world: &'a World,
    dir: &'a Path,
    stops_at: Option<&'static str>,
    has_room: bool,
    is_refused: bool,
    steps: RefCell<Vec<&'static str>>,
}

impl Broker<'_> {
    fn take(&self, term: u64) -> Result<Taken, ArchiveError> {
        self.take_as(term, true)
    }

    fn take_as(&self, term: u64, is_owner: bool) -> Result<Taken, ArchiveError> {
        let step = |step| {
            self.steps.borrow_mut().push(step);
            if self.stops_at == Some(step) { Err(down("stopped")) } else { Ok(()) }
        };
        let taker = Taker {
            map: self.world,
            archive: self.world,
            cluster: "c",
            dir: self.dir,
            new: Epoch(u128::from(term)),
            why_no_room: &|| (!self.has_room).then(|| "no room".into()),
            step: &step,
        };
        taker.take(&Wanted { topic: topic(), term, is_refused: self.is_refused }, &|| is_owner)
    }

    fn path(&self) -> PathBuf {
        self.dir.join(folder(&topic()))
    }

    /// The log on the disk, and the publishers there.
    fn opened(&self) -> (Epoch, Position, Vec<(u32, Position)>) {
        let (store, recovered) = self.store();
        let places = recovered.places.iter().map(|place| (place.number, place.position)).collect();
        (recovered.epoch, store.log().end(), places)
    }

    fn store(&self) -> (Store, super::super::store::Recovered) {
        let (max_bytes, sync) = (Some(4 << 20), Duration::from_millis(1));
        let (max_delivery, max_publishers) = (1 << 20, 100);
        let (max_age, begin, is_shared) = (None, None, true);
        let options =
            StoreOptions { max_bytes, max_age, sync, max_delivery, max_publishers, begin, is_shared };
        Store::open(&self.path(), &topic(), &options).unwrap()
    }

    /// Writes up to a position, and archives a part, with a publisher at a position.
    fn write(&self, world: &World, end: Position, archived: Position, publisher: Position) {
        let mut log = Log::open(self.path().join("log"), Options::default().sync(SyncPolicy::Never)).unwrap();
        log.append_hole(end).unwrap();
        log.close().unwrap();
        let claim = world.claim.lock().unwrap();
        let note =
            Note { term: claim.term, missing_below: 0, next_number: 4, places: vec![place(3, publisher)] };
        world.log().append_with(archived, &[], &note.encode(archived)).unwrap();
    }
}

impl World {
    fn broker<'a>(&'a self, dir: &'a tempfile::TempDir) -> Broker<'a> {
        let (stops_at, has_room, is_refused, steps) = (None, true, false, RefCell::default());
        Broker { world: self, dir: dir.path(), stops_at, has_room, is_refused, steps }
    }

    /// The log that the map names.
    fn log(&self) -> Arc<Kept> {
        let epoch = self.claim.lock().unwrap().epoch;
        self.logs.lock().entry(epoch).or_default().clone()
    }
}

fn dirs<const N: usize>() -> [tempfile::TempDir; N] {
    [(); N].map(|()| tempfile::tempdir().unwrap())
}

#[test]
fn the_next_owner_goes_on_behind_all_that_the_one_before_may_write() {
    let (world, dirs) = (World::default(), dirs::<3>());
    let [first, next, third] = [0, 1, 2].map(|n| world.broker(&dirs[n]));
    assert_eq!(first.take(1), Ok(Taken { epoch: Epoch(1), archived: 0, limit: CLAIMED }));
    assert_eq!(first.opened(), (Epoch(1), 0, vec![]));
    first.write(&world, 500, 400, 70);
    // It is started again, and in another term in which nobody has gone on.
    for term in [1, 1, 2] {
        assert_eq!(first.take(term), Ok(Taken { epoch: Epoch(1), archived: 400, limit: CLAIMED }));
    }
    assert!(next.take_as(3, false).is_err(), "it is none any more");
    assert_eq!((world.log().kept(), world.claim.lock().unwrap().term), (0..400, 2));
    assert_eq!(next.take(3), Ok(Taken { epoch: Epoch(1), archived: CLAIMED, limit: 2 * CLAIMED }));
    assert_eq!(next.opened(), (Epoch(1), CLAIMED, vec![(3, 70)]));
    let note = Note::decode(&world.log().note()).unwrap();
    assert_eq!((world.log().kept(), note.term, note.next_number), (0..CLAIMED, 3, 4));

    // What the first one has on its disk is over, and kept.
    let early = first.take(2).unwrap_err();
    assert!(early.to_string().contains("in term 3"), "{early}");
    assert_eq!(first.take(4).unwrap().limit, 3 * CLAIMED);
    let former = dirs[0].path().join(FORMER).join(folder(&topic()));
    assert_eq!(on_disk(&former).unwrap().map(|log| log.end), Some(500));
    // The newer one takes its place.
    first.write(&world, 2 * CLAIMED + 600, 2 * CLAIMED + 600, 90);
    next.take(5).unwrap();
    first.take(6).unwrap();
    assert_eq!(on_disk(&former).unwrap().map(|log| log.end), Some(2 * CLAIMED + 600));
    // A disk with another log, as of a broker that was alone.
    fs::create_dir_all(third.path().join("log")).unwrap();
    let options = Options::default().log_id(Some(77_u128.to_le_bytes()));
    Log::open(third.path().join("log"), options).unwrap().close().unwrap();
    assert_eq!(third.take(7).unwrap().epoch, Epoch(1));
    assert_eq!(third.opened(), (Epoch(1), 5 * CLAIMED, vec![(3, 90)]));
}

/// A broker that is killed at any step goes on there, and so does another one. Positions are skipped once, and the publishers are known.
#[test]
fn whoever_stops_at_a_step_goes_on_there() {
    let (world, dir) = (World::default(), tempfile::tempdir().unwrap());
    let all = world.broker(&dir);
    all.take(1).unwrap();
    all.write(&world, 500, 400, 70);
    let mut steps = all.steps.take();
    let [_, other] = dirs();
    let other = world.broker(&other);
    other.take(2).unwrap();
    steps.extend(other.steps.take());
    all.take(3).unwrap();
    steps.extend(all.steps.take());
    let inside = ["log made", "publishers made", "mark made"];
    for step in ["named", "staged", "claimed", "fenced", "aside", "moved"].into_iter().chain(inside) {
        assert!(steps.contains(&step), "{steps:?}");
        for is_new in [true, false] {
            stop_at(step, is_new);
        }
    }
}

fn stop_at(step: &'static str, is_new: bool) {
    let (world, dirs) = (World::default(), dirs::<3>());
    let [one, other, third] = [0, 1, 2].map(|n| world.broker(&dirs[n]));
    if !is_new {
        other.take(1).unwrap();
        other.write(&world, 500, 400, 70);
        // It has a log of an earlier owner.
        fs::create_dir_all(one.path().join("log")).unwrap();
    }
    let (begin, places) = if is_new { (0, vec![]) } else { (CLAIMED, vec![(3, 70)]) };
    let stopping = Broker { stops_at: Some(step), ..world.broker(&dirs[0]) };
    let stopped = Cell::new(false);
    for _ in 0..3 {
        stopped.set(stopping.take(2).is_err() || stopped.get());
    }
    assert!(stopped.get() || is_new || step == "named", "{step}");
    let taken = one.take(2).unwrap();
    assert_eq!(
        (taken.limit, one.opened().1, one.opened().2),
        (begin + CLAIMED, begin, places),
        "{step} {is_new}"
    );
    // It opens what it has.
    assert_eq!(
        (one.take(2), one.opened().1),
        (Ok(Taken { archived: world.log().kept().end, ..taken }), begin)
    );
    one.write(&world, begin + 100, begin + 100, 90);
    third.take(3).unwrap();
    assert_eq!(third.opened(), (taken.epoch, begin + CLAIMED, vec![(3, 90)]), "{step} {is_new}");
    // Another one goes on where the first one has stopped.
    let (world, dirs) = (World::default(), self::dirs::<2>());
    let _ = Broker { stops_at: Some(step), ..world.broker(&dirs[0]) }.take(1);
    let other = world.broker(&dirs[1]);
    other.take(2).unwrap();
    let first = other.opened();
    world.broker(&dirs[0]).take(3).unwrap();
    let second = world.broker(&dirs[0]).opened();
    assert!(second.0 == first.0 && second.1 > first.1, "{step} {first:?} {second:?}");
}

/// Rules of the store may remove each object, the name of the log among them.
#[test]
fn whatever_expires_no_position_is_used_again_and_the_log_keeps_its_name() {
    for keeps_names in [false, true] {
        let (world, dirs) = (World::default(), dirs::<2>());
        let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
        first.take(1).unwrap();
        first.write(&world, 100 << 30, 400, 70);
        world.logs.lock().clear();
        if !keeps_names {
            world.names.lock().clear();
        }
        assert_eq!(next.take(2).unwrap().epoch, Epoch(1));
        assert_eq!(next.opened().1, CLAIMED);
        assert_eq!(world.log().kept().end, CLAIMED, "the owner before is fenced");
    }
}

/// The archive had nothing, and the owner before archived more while the next one claimed: these messages were confirmed, and count.
#[test]
fn what_was_archived_before_the_claim_counts_where_all_else_has_expired() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    first.write(&world, 900, 400, 70);
    world.logs.lock().clear();
    *world.late.lock() = Some(600);
    let early = next.take(2).unwrap_err();
    assert!(early.to_string().contains("archived up to 600 meanwhile"), "{early}");
    assert_eq!(next.take(2).unwrap().archived, CLAIMED);
    assert_eq!(next.opened(), (Epoch(1), CLAIMED, vec![(3, 80)]));
}

/// A store of the map that has forgotten all: the disk says how far the log is, or else the archive.
#[test]
fn a_map_that_was_lost_costs_no_log() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    first.write(&world, 500, 400, 70);
    *world.claim.lock() = None;
    assert_eq!(first.take(1), Ok(Taken { epoch: Epoch(1), archived: 400, limit: CLAIMED }));
    *world.claim.lock() = None;
    assert_eq!(next.take(2), Ok(Taken { epoch: Epoch(1), archived: CLAIMED, limit: 2 * CLAIMED }));
    // With nothing in the archive, nobody knows how far the log was: this is another one.
    *world.claim.lock() = None;
    world.logs.lock().clear();
    let third = tempfile::tempdir().unwrap();
    assert_eq!(world.broker(&third).take(3), Ok(Taken { epoch: Epoch(3), archived: 0, limit: CLAIMED }));
}

/// A folder that was made for a claim which was not taken is nobody's: another owner may have written at its positions meanwhile.
#[test]
fn a_folder_without_a_claim_is_not_taken_for_that_of_another_owner() {
    for archived in [None, Some(CLAIMED), Some(CLAIMED + 70)] {
        let (world, dirs) = (World::default(), dirs::<3>());
        let [first, next, third] = [0, 1, 2].map(|n| world.broker(&dirs[n]));
        first.take(1).unwrap();
        first.write(&world, 500, 400, 70);
        Broker { stops_at: Some("staged"), ..world.broker(&dirs[1]) }.take(2).unwrap_err();
        third.take(3).unwrap();
        match archived {
            Some(archived) => third.write(&world, CLAIMED + 100, archived, 90),
            // All objects have expired.
            None => world.logs.lock().clear(),
        }
        assert_eq!(next.take(4).unwrap().limit, 3 * CLAIMED, "{archived:?}");
        assert_eq!(next.opened().1, 2 * CLAIMED);
    }
}

/// The map refuses the claim.
#[test]
fn a_folder_whose_claim_was_refused_is_removed() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    first.write(&world, 500, 400, 70);
    world.refuses.store(true, Ordering::Relaxed);
    assert!(next.take(2).is_err() && !dirs[1].path().join(TAKEN).join(folder(&topic())).exists());
    world.refuses.store(false, Ordering::Relaxed);
    assert_eq!((next.take(2).unwrap().limit, next.opened().1), (2 * CLAIMED, CLAIMED));
}

/// A broker was killed while it made the folder: the log is there, and the publishers are not.
#[test]
fn a_folder_that_is_half_made_is_not_taken() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    first.write(&world, 500, 400, 70);
    Broker { stops_at: Some("fenced"), ..world.broker(&dirs[1]) }.take(2).unwrap_err();
    let path = dirs[1].path().join(TAKEN).join(folder(&topic()));
    fs::remove_dir_all(&path).unwrap();
    let options = Options::default().log_id(Some(1_u128.to_le_bytes())).first_position(CLAIMED);
    fs::create_dir_all(&path).unwrap();
    Log::open(path.join("log"), options).unwrap().close().unwrap();
    next.take(2).unwrap();
    assert_eq!(next.opened(), (Epoch(1), 2 * CLAIMED, vec![(3, 70)]));
}

/// A store of the map that was made anew counts terms from 1, and one that was restored knows an old claim.
#[test]
fn a_map_that_is_older_than_the_archive_keeps_nobody_from_it() {
    let (world, dirs) = (World::default(), dirs::<3>());
    let [first, next, third] = [0, 1, 2].map(|n| world.broker(&dirs[n]));
    first.take(6).unwrap();
    first.write(&world, 500, 400, 70);
    let old = *world.claim.lock();
    // The right owner has all.
    *world.claim.lock() = None;
    assert_eq!(first.take(1), Ok(Taken { epoch: Epoch(6), archived: 400, limit: CLAIMED }));
    *world.claim.lock() = old;
    next.take(7).unwrap();
    next.write(&world, CLAIMED + 1_000, CLAIMED + 70, 90);
    *world.claim.lock() = None;
    assert_eq!(next.take(1).unwrap().archived, CLAIMED + 70);
    // Nobody writes where that one may have written.
    for (known, term) in [(old, 9), (old, 2), (None, 1)] {
        let (world, dirs) = (World::default(), self::dirs::<3>());
        let [first, next, third] = [0, 1, 2].map(|n| world.broker(&dirs[n]));
        first.take(6).unwrap();
        first.write(&world, 500, 400, 70);
        next.take(7).unwrap();
        next.write(&world, CLAIMED + 1_000, CLAIMED + 70, 90);
        *world.claim.lock() = known.map(|known| LogClaim { epoch: Epoch(6), ..known });
        let taken = third.take(term).unwrap();
        assert_eq!((taken.epoch, third.opened().1), (Epoch(6), 2 * CLAIMED), "{known:?} {term}");
        // And the owner of before, whose disk is behind.
        let behind = first.take(term + 1).unwrap();
        assert_eq!((behind.limit, first.opened().1), (4 * CLAIMED, 3 * CLAIMED), "{known:?} {term}");
    }
    // A broker that has not heard of the owner in a later term waits for the map.
    *world.claim.lock() = old.map(|old| LogClaim { term: 8, ..old });
    assert!(third.take(5).unwrap_err().to_string().contains("in term"));
}

/// The archive does not take what this disk has, and claim and disk agree: the log goes on behind it.
#[test]
fn a_log_that_the_archive_has_refused_goes_on_behind_itself() {
    let (world, dir) = (World::default(), tempfile::tempdir().unwrap());
    let first = world.broker(&dir);
    first.take(1).unwrap();
    first.write(&world, 500, 400, 70);
    let refused = Broker { is_refused: true, ..world.broker(&dir) };
    for step in ["staged", "claimed", "fenced"] {
        Broker { stops_at: Some(step), is_refused: true, ..world.broker(&dir) }.take(1).unwrap_err();
    }
    assert_eq!(refused.take(1), Ok(Taken { epoch: Epoch(1), archived: CLAIMED, limit: 2 * CLAIMED }));
    assert_eq!(first.opened(), (Epoch(1), CLAIMED, vec![(3, 70)]));
    assert_eq!(first.take(1).unwrap().limit, 2 * CLAIMED, "and stays there");
    // Also where the map has lost the claim, and the disk is far before the archive.
    first.write(&world, 3 * CLAIMED, CLAIMED, 70);
    *world.claim.lock() = None;
    assert_eq!((refused.take(1).unwrap().limit, first.opened().1), (5 * CLAIMED, 4 * CLAIMED));
}

/// An empty log is not worth the place of one with messages.
#[test]
fn an_empty_log_does_not_replace_what_was_put_aside() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    first.write(&world, 1_000, 500, 70);
    for term in [2, 4] {
        next.take(term).unwrap();
        first.take(term + 1).unwrap();
    }
    let former = dirs[0].path().join(FORMER).join(folder(&topic()));
    assert_eq!(on_disk(&former).unwrap().map(|log| log.end), Some(1_000));
}

/// Its disk is far before its archive, as it never waited for that.
#[test]
fn a_log_of_before_the_cluster_goes_on_behind_its_disk() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    fs::create_dir_all(first.path()).unwrap();
    let options = Options::default().log_id(Some(1_u128.to_le_bytes()));
    let mut log = Log::open(first.path().join("log"), options).unwrap();
    log.append_hole(3 * CLAIMED).unwrap();
    log.close().unwrap();
    assert_eq!(first.take(5), Ok(Taken { epoch: Epoch(1), archived: 0, limit: 4 * CLAIMED }));
    world.log().append_with(100, &[7; 100], b"").unwrap();
    assert_eq!(first.take(5).unwrap().archived, 200);
    next.take(6).unwrap();
    assert_eq!(next.opened().1, 4 * CLAIMED);
    world.log().append_with(4 * CLAIMED, &[], b"no note").unwrap();
    assert!(matches!(next.take(6), Err(ArchiveError::Refused(_))));
}

/// A broker without room for one more topic, and an archive that is down, cost no positions, however often it is tried.
#[test]
fn who_cannot_open_a_topic_skips_nothing() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    first.write(&world, 500, 400, 70);
    let (claim, full) = (*world.claim.lock(), Broker { has_room: false, ..world.broker(&dirs[1]) });
    for _ in 0..3 {
        assert_eq!(full.take(2), Err(down("no room")));
    }
    assert_eq!((world.log().kept(), *world.claim.lock()), (0..400, claim));
    world.is_down.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(next.take(2).is_err());
    }
    world.is_down.store(false, Ordering::Relaxed);
    assert_eq!(next.take(2), Ok(Taken { epoch: Epoch(1), archived: CLAIMED, limit: 2 * CLAIMED }));
    // Positions that are nearly used up are asked for again.
    next.write(&world, 2 * CLAIMED - MAX_AHEAD, CLAIMED, 70);
    assert_eq!(next.take(2).unwrap().limit, 3 * CLAIMED);
    assert_eq!(world.claim.lock().unwrap().begin, CLAIMED);
}

/// The log of the topic is open still, since it is being closed.
#[test]
fn a_folder_that_is_in_use_is_not_moved() {
    let (world, dirs) = (World::default(), dirs::<2>());
    let [first, next] = [0, 1].map(|n| world.broker(&dirs[n]));
    first.take(1).unwrap();
    let open = first.store();
    next.take(2).unwrap();
    let early = first.take(3).unwrap_err();
    assert!(early.to_string().contains("is open still") && first.path().exists(), "{early}");
    drop(open);
    assert_eq!(first.take(3).unwrap().limit, 3 * CLAIMED);
}
