//! Downstream readers of a spliced subscription's ring, which the ring's writer wakes.

use std::sync::Arc;

use rocketring::{MAX_WATCHERS, PeerDoorbell, WatchKey};

/// The connection over which a doorbell was passed on, and the doorbell's number there.
pub(crate) type Passed = Option<(u64, u32)>;

#[derive(Default)]
pub(crate) struct Watchers {
    all: Vec<Watcher>,
    /// Doorbells that were passed on and are no longer wanted.
    gone: Vec<(u64, u32)>,
    /// Whether this end reported that it need not be woken.
    pub(crate) lazily: bool,
    /// Whether the worker was asked to look at the watchers and has not done so yet.
    asked: bool,
}

struct Watcher {
    key: WatchKey,
    doorbell: Arc<PeerDoorbell>,
    passed: Passed,
}

impl Watchers {
    /// Records a change. Returns whether the worker must be asked to look, which it was not already.
    pub(crate) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// Records that the worker looks after this call.
    pub(crate) fn answer(&mut self) {
        self.asked = false;
    }

    /// Adds a watcher. Returns false if there are too many.
    pub(crate) fn add(&mut self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        self.remove(key);
        let place = self.all.len() < MAX_WATCHERS;
        if place {
            self.all.push(Watcher { key, doorbell, passed: None });
        }
        place
    }

    pub(crate) fn remove(&mut self, key: WatchKey) {
        let Some(at) = self.all.iter().position(|watcher| watcher.key == key) else { return };
        let Some(passed) = self.all.swap_remove(at).passed else { return };
        // One reader may follow the ring under two ids with one doorbell.
        if !self.all.iter().any(|watcher| watcher.passed == Some(passed)) {
            self.gone.push(passed);
        }
    }

    /// Returns how many of this end's own subscribers the writer wakes directly.
    pub(crate) fn passed(&self) -> usize {
        self.all.iter().filter(|watcher| watcher.key.2 == 0 && watcher.passed.is_some()).count()
    }

    /// Takes the numbers under which this connection knows readers that are gone.
    pub(crate) fn take_gone(&mut self, conn: u64) -> Vec<u32> {
        let gone = std::mem::take(&mut self.gone);
        gone.into_iter().filter(|(of, _)| *of == conn).map(|(_, number)| number).collect()
    }

    /// Returns the watchers that this connection does not know.
    pub(crate) fn not_passed(
        &mut self,
        conn: u64,
    ) -> impl Iterator<Item = (&Arc<PeerDoorbell>, &mut Passed)> {
        let passed = move |watcher: &Watcher| watcher.passed.is_some_and(|(to, _)| to == conn);
        let all = self.all.iter_mut().filter(move |watcher| !passed(watcher));
        all.map(|watcher| (&watcher.doorbell, &mut watcher.passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doorbell() -> Arc<PeerDoorbell> {
        let doorbell = rocketring::Doorbell::new(false).unwrap();
        let [page, pipe] = doorbell.files().map(|file| file.try_clone_to_owned().unwrap());
        Arc::new(rocketring::PeerMapper::new(1, 1 << 20).doorbell(page, pipe).unwrap())
    }

    /// Passes all watchers on to a connection. A doorbell's number is its index.
    fn pass(watchers: &mut Watchers, conn: u64, doorbells: &[Arc<PeerDoorbell>]) -> Vec<u32> {
        let mut told = Vec::new();
        for (doorbell, passed) in watchers.not_passed(conn) {
            let number = doorbells.iter().position(|known| Arc::ptr_eq(known, doorbell)).unwrap() as u32;
            *passed = Some((conn, number));
            told.push(number);
        }
        told
    }

    #[test]
    fn each_is_passed_to_each_connection_once() {
        let (mut watchers, doorbells) = (Watchers::default(), [doorbell(), doorbell()]);
        assert!(
            watchers.add((1, 0, 0), doorbells[0].clone()) && watchers.add((2, 0, 0), doorbells[1].clone())
        );
        assert_eq!(pass(&mut watchers, 7, &doorbells), [0, 1]);
        assert_eq!(pass(&mut watchers, 7, &doorbells), []);
        assert_eq!(pass(&mut watchers, 8, &doorbells), [0, 1], "another connection knows of none");
        watchers.remove((1, 0, 0));
        assert_eq!(watchers.take_gone(7), [], "what the old connection knew is gone with it");
        watchers.remove((2, 0, 0));
        assert_eq!(watchers.take_gone(8), [1]);
    }

    #[test]
    fn a_reader_with_two_subscriptions_is_gone_with_the_second() {
        let (mut watchers, doorbells) = (Watchers::default(), [doorbell()]);
        assert!(
            watchers.add((1, 0, 0), doorbells[0].clone()) && watchers.add((1, 5, 0), doorbells[0].clone())
        );
        pass(&mut watchers, 7, &doorbells);
        watchers.remove((1, 0, 0));
        assert_eq!(watchers.take_gone(7), []);
        watchers.remove((1, 5, 0));
        assert_eq!(watchers.take_gone(7), [0]);
    }

    #[test]
    fn the_worker_is_asked_once_until_it_looks() {
        let mut watchers = Watchers::default();
        assert!(watchers.ask() && !watchers.ask() && !watchers.ask());
        watchers.answer();
        assert!(watchers.ask() && !watchers.ask());
    }

    #[test]
    fn there_are_only_so_many() {
        let (mut watchers, doorbell) = (Watchers::default(), doorbell());
        for n in 0..MAX_WATCHERS as u32 {
            assert!(watchers.add((1, n, 0), doorbell.clone()));
        }
        assert!(!watchers.add((2, 0, 0), doorbell.clone()));
        assert!(watchers.add((1, 3, 0), doorbell), "one that comes again takes no other place");
    }
}
