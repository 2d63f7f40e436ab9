//! The playout buffer of a viewer.

use std::time::Instant;

use super::audience::{Audience, Seat};
use super::fault::{Fault, Kind};

/// The media that was fetched and not yet played. A viewer begins to play once it has the media that the playlist listed at its
/// arrival.
#[derive(Debug, Default)]
pub struct Playback {
    since: Option<Instant>,
    /// The seconds of media that have been there since playing began; before, those that are there.
    ready_s: f64,
}

impl Playback {
    /// Begins to play, if it has not. A player that is further from the live edge than `hold_s` would play faster to get there.
    pub fn begin(&mut self, hold_s: f64, seat: &Seat, audience: &Audience) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            self.ready_s = self.ready_s.min(hold_s);
            seat.plays_until(self.since, self.ready_s, audience);
        }
    }

    /// Adds media. If the buffer ran empty before it came, that is a fault, and the picture stood still until now.
    pub fn add(&mut self, duration_s: f64, seat: &Seat, audience: &Audience) -> Option<Fault> {
        let Some(since) = self.since else {
            self.ready_s += duration_s;
            return None;
        };
        let left_s = self.ready_s - since.elapsed().as_secs_f64();
        seat.had_left(left_s);
        self.ready_s += duration_s - left_s.min(0.0);
        seat.plays_until(self.since, self.ready_s, audience);
        let text = || format!("the playout buffer was empty for {:.3} s when this came", -left_s);
        (left_s < 0.0).then(|| Fault::new(Kind::Late, text()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::super::audience::tests::audience;
    use super::*;

    #[test]
    fn the_playout_buffer_runs_empty() {
        let (audience, seat, mut playback) = (audience(), Seat::new(), Playback::default());
        assert_eq!(playback.add(10.0, &seat, &audience), None);
        playback.begin(0.0, &seat, &audience);
        std::thread::sleep(Duration::from_millis(20));
        assert!(seat.overdue_ms(&audience).is_some());
        let fault = playback.add(1000.0, &seat, &audience).unwrap();
        assert_eq!(fault.kind, Kind::Late);
        assert_eq!((seat.overdue_ms(&audience), playback.add(1.0, &seat, &audience)), (None, None));
        assert!(seat.least_ms.load(Ordering::Relaxed) < 0);
    }
}
