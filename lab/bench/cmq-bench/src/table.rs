//! Tables of measurements.

use benchkit::{
    named::Named,
    output::human,
    table::{self, Reps, Table},
};

use super::{point::Row, system::System};

fn same_load(a: &Row, b: &Row) -> bool {
    (a.pattern, a.size_bytes) == (b.pattern, b.size_bytes) && a.loss == b.loss
}

/// A line for each point: medians over repetitions, 95 % intervals, and the ratio of CMQ's rate to the system's rate.
pub fn exchanges(rows: &[Row]) -> String {
    let points = table::points(rows, |row| row.rep, |a, b| a.system == b.system && same_load(a, b));
    let rate = |row: &Row| row.messages_per_s;
    let times = |theirs: &Reps<'_, Row>| {
        let is_ours = |row: &Row| row.system == System::Cmq && same_load(row, theirs.first());
        let ours = points.iter().find(|ours| is_ours(ours.first()));
        let ours = ours.filter(|_| theirs.first().system != System::Cmq);
        table::figure(ours.and_then(|ours| ours.times(theirs, rate)), 2)
    };
    Table::of(&points)
        .left("pattern", |point| point.first().pattern.name())
        .right("size", |point| point.first().size_bytes)
        .right("loss", |point| match point.first().loss {
            loss if loss > 0.0 => format!("{:.1} %", loss * 100.0),
            _ => String::new(),
        })
        .right("outstanding", |point| point.first().outstanding)
        .left("system", |point| point.first().system.name())
        .interval("msg/s", rate, human)
        .median("mean ms", 3, |row| row.mean_ms)
        .median("stddev ms", 3, |row| row.stddev_ms)
        .right("cmq is ×", times)
        .sum("sent", |row| row.sent)
        .sum("received", |row| row.received)
        .sum("reported", |row| row.lost_reported)
        .sum("by filter", |row| row.lost_by_filter)
        .sum("gave up", |row| row.given_up)
        .text()
}
