//! The order of measurements.

use std::io;

use serde::Serialize;

use crate::output::{Output, Progress};

/// Repeated measurements, and where their rows go.
pub struct Series<'a> {
    /// How often each point is measured.
    pub reps: u32,
    /// The name of the bench.
    pub name: &'a str,
    /// The files for the rows, written again after each load.
    pub output: &'a Output,
    /// All repetitions of a load come before the next load. Otherwise a repetition has all loads, and what changes over minutes is in
    /// all of them.
    pub by_load: bool,
}

impl Series<'_> {
    /// Measures all points, those of the same load (a list) in turn. `measure` returns a point's rows and their summary.
    ///
    /// # Errors
    /// The first error of a measurement, or a file cannot be written.
    pub fn run<P, R: Serialize, E: From<io::Error>>(
        &self,
        loads: &[Vec<P>],
        mut measure: impl FnMut(&P, u32) -> Result<(Vec<R>, String), E>,
    ) -> Result<Vec<R>, E> {
        let mut progress = Progress::new(loads.iter().map(Vec::len).sum::<usize>() * self.reps as usize);
        let mut rows = Vec::new();
        let (all, each) = (loads.len() as u32, self.reps);
        for step in 0..all * each {
            let (load, rep) =
                if self.by_load { (step / each, step % each) } else { (step % all, step / all) };
            for point in in_turn(&loads[load as usize], rep) {
                let (measured, summary) = measure(point, rep)?;
                progress.one(&summary);
                rows.extend(measured);
            }
            let is_last = if self.by_load { rep + 1 == each } else { load + 1 == all };
            if is_last {
                self.output.write_rows(self.name, &rows)?;
            }
        }
        Ok(rows)
    }
}

/// Rotates the order with each repetition, so that no system always follows the same other one.
pub fn in_turn<T>(load: &[T], rep: u32) -> impl Iterator<Item = &T> {
    let first = rep as usize % load.len().max(1);
    load[first..].iter().chain(&load[..first])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_a_load_come_together_or_with_those_of_others() {
        let output = Output { json: None, out: None, name: None };
        let of = |by_load| {
            let series = Series { reps: 2, name: "test", output: &output, by_load };
            let measure =
                |point: &char, rep| Ok::<_, io::Error>((vec![format!("{point}{rep}")], String::new()));
            series.run(&[vec!['a', 'b'], vec!['c']], measure).unwrap().join(" ")
        };
        assert_eq!([of(true), of(false)], ["a0 b0 b1 a1 c0 c1", "a0 b0 c0 b1 a1 c1"]);
    }

    #[test]
    fn every_system_is_measured_in_each_repetition_and_begins_one() {
        let orders = [0, 1, 2, 3].map(|rep| in_turn(&['a', 'b', 'c'], rep).collect::<String>());
        assert_eq!(orders, ["abc", "bca", "cab", "abc"]);
        assert_eq!(in_turn::<u8>(&[], 7).count(), 0);
    }
}
