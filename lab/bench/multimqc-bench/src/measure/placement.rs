//! Which processors clients and servers run on.

use commands::Failure;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Which processors clients and servers run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Placement {
    /// The client on the first processor, the server on the others
    Apart,
    /// Both on the first processor
    Together,
    /// A client on each processor, the server wherever there is time
    Everywhere,
}

/// The processors that this process may use.
#[derive(Debug, Clone)]
pub struct Processors(Vec<usize>);

impl Processors {
    pub fn find() -> Result<Processors, Failure> {
        let set = sched_getaffinity(None).map_err(Failure::failed)?;
        Ok(Processors((0..CpuSet::MAX_CPU).filter(|at| set.is_set(*at)).collect()))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Where clients run, each on one processor.
    pub fn of_clients(&self, placement: Placement) -> &[usize] {
        if placement == Placement::Everywhere { &self.0 } else { &self.0[..1] }
    }

    /// Where the server runs.
    pub fn of_server(&self, placement: Placement) -> &[usize] {
        match placement {
            Placement::Together => &self.0[..1],
            Placement::Apart if self.0.len() > 1 => &self.0[1..],
            _ => &self.0,
        }
    }
}

impl Placement {
    pub const ALL: [Placement; 3] = [Placement::Apart, Placement::Together, Placement::Everywhere];
}

/// The command that runs another one on these processors.
pub fn on(processors: &[usize], enter: &[String]) -> Vec<String> {
    let list: Vec<String> = processors.iter().map(usize::to_string).collect();
    let mut command = ["taskset", "-c", &list.join(",")].map(str::to_owned).to_vec();
    command.extend_from_slice(enter);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_server_get_their_processors() {
        let two = Processors(vec![3, 5]);
        let of = Placement::ALL.map(|placement| (two.of_clients(placement), two.of_server(placement)));
        assert_eq!(of, [(&[3][..], &[5][..]), (&[3], &[3]), (&[3, 5], &[3, 5])]);
        assert_eq!(Processors(vec![3]).of_server(Placement::Apart), [3]);
        assert_eq!(on(&[3, 5], &["nsenter".into()]), ["taskset", "-c", "3,5", "nsenter"]);
    }
}
