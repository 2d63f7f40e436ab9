//! Tables of measurements.

use std::fmt::Write;

use benchkit::{
    output::{human, span},
    stats,
};

use super::{point::Row, system::System};

/// True for rows of one point.
fn same(a: &Row, b: &Row) -> bool {
    a.system == b.system && same_load(a, b)
}

fn same_load(a: &Row, b: &Row) -> bool {
    (a.pattern, a.size_bytes) == (b.pattern, b.size_bytes) && a.loss == b.loss
}

fn estimate(rows: &[&Row], figure: impl Fn(&Row) -> f64) -> stats::Estimate {
    stats::estimate(rows.iter().map(|row| figure(row))).unwrap_or_default()
}

/// A line for each point: medians over repetitions, 95 % intervals, and the ratio of CMQ's rate to the system's rate.
pub fn exchanges(rows: &[Row]) -> String {
    let mut out = String::from(
        "| pattern | size | loss | outstanding | system | msg/s | 95 % | mean ms | stddev ms | cmq is × | sent | \
         received | reported | by filter | gave up |\n|---|---:|---:|---:|---|---:|---|---:|---:|---:|---:|---:|---:|\
         ---:|---:|\n",
    );
    let mut points: Vec<&Row> = Vec::new();
    for row in rows {
        if !points.iter().any(|point| same(point, row)) {
            points.push(row);
        }
    }
    for point in points {
        line(&mut out, rows, point);
    }
    out
}

fn line(out: &mut String, rows: &[Row], point: &Row) {
    let reps: Vec<&Row> = rows.iter().filter(|row| same(row, point)).collect();
    let rate = estimate(&reps, |row| row.messages_per_s);
    let sum = |figure: fn(&Row) -> u64| reps.iter().map(|row| figure(row)).sum::<u64>();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {} | {:.3} | {:.3} | {} | {} | {} | {} | {} | {} |",
        point.pattern.name(),
        point.size_bytes,
        if point.loss > 0.0 { format!("{:.1} %", point.loss * 100.0) } else { String::new() },
        point.outstanding,
        point.system.name(),
        human(rate.median),
        span(rate.interval, human),
        estimate(&reps, |row| row.mean_ms).median,
        estimate(&reps, |row| row.stddev_ms).median,
        times(rows, &reps),
        sum(|row| row.sent),
        sum(|row| row.received),
        sum(|row| row.lost_reported),
        sum(|row| row.lost_by_filter),
        sum(|row| row.given_up),
    );
}

/// The ratio of CMQ's rate to the rate of `theirs`, from repetitions that ran in turn.
fn times(rows: &[Row], theirs: &[&Row]) -> String {
    let Some(point) = theirs.first().filter(|row| row.system != System::Cmq) else { return String::new() };
    let ours = rows.iter().filter(|row| row.system == System::Cmq && same_load(row, point));
    let ours: Vec<(u32, f64)> = ours.map(|row| (row.rep, row.messages_per_s)).collect();
    let theirs: Vec<(u32, f64)> = theirs.iter().map(|row| (row.rep, row.messages_per_s)).collect();
    stats::times(&ours, &theirs).map_or_else(String::new, |times| format!("{times:.2}"))
}
