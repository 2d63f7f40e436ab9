//! The table of `rbmq-bench gateway`.

use std::fmt::Write;

use benchkit::{output::human, stats};

use super::point::Row;

/// A line for each point: medians over the repetitions, and of ours how many times the other server's they are, from pairs that were measured
/// in turn.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| clients | bytes | subs | server | per s | × | server us each | × | p50 us | × | p99 us | lost | others |\n\
         |---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut lines: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match lines.iter_mut().find(|line| line[0].system == row.system && line[0].is_beside(row)) {
            Some(line) => line.push(row),
            None => lines.push(vec![row]),
        }
    }
    // The lines of a load come together.
    let first = |line: &Vec<&Row>| lines.iter().position(|other| other[0].is_beside(line[0]));
    let mut order: Vec<&Vec<&Row>> = lines.iter().collect();
    order.sort_by_key(|line| first(line));
    for line in order {
        let other = lines.iter().find(|other| other[0].is_beside(line[0]) && !other[0].system.is_ours());
        let other = other.filter(|_| line[0].system.is_ours()).map_or(&[][..], |other| other);
        let of = |value: fn(&Row) -> Option<f64>, digits| {
            let times = stats::times(&numbered(line, value), &numbered(other, value));
            format!("{} | {}", figure(median(line, value), digits), figure(times, 2))
        };
        let rate = median(line, |row| Some(row.per_s)).map_or_else(String::new, human);
        let times =
            stats::times(&numbered(line, |row| Some(row.per_s)), &numbered(other, |row| Some(row.per_s)));
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {rate} | {} | {} | {} | {} | {} | {} |",
            line[0].load,
            line[0].size_bytes,
            line[0].subscribers,
            line[0].system.name(),
            figure(times, 2),
            of(|row| row.server_cpu_us, 3),
            of(|row| row.p50_us, 0),
            figure(median(line, |row| row.p99_us), 0),
            line.iter().map(|row| row.lost).sum::<u64>(),
            figure(line.iter().filter_map(|row| row.other_cores).reduce(f64::max), 2),
        );
    }
    out
}

impl Row {
    /// Whether both have the same load.
    fn is_beside(&self, other: &Row) -> bool {
        let load = |row: &Row| (row.size_bytes, row.subscribers);
        self.load == other.load && load(self) == load(other)
    }
}

/// A figure as text, empty without one.
pub fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
}

fn numbered(rows: &[&Row], value: fn(&Row) -> Option<f64>) -> Vec<(u32, f64)> {
    rows.iter().filter_map(|row| Some((row.rep, value(row)?))).collect()
}

fn median(rows: &[&Row], value: fn(&Row) -> Option<f64>) -> Option<f64> {
    stats::median(rows.iter().filter_map(|row| value(row)))
}
