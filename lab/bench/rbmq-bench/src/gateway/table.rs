//! The table of `rbmq-bench gateway`.

use benchkit::{
    named::Named,
    output::human,
    table::{self, Reps, Table, figure},
};

use super::point::Row;

/// A line for each point: medians over the repetitions, and of ours how many times the other server's they are, from pairs that were measured
/// in turn.
pub fn table(rows: &[Row]) -> String {
    let load = |row: &Row| (row.load.clone(), row.size_bytes, row.subscribers);
    let mut points = table::points(
        rows,
        |row| row.rep,
        |one, other| one.system == other.system && load(one) == load(other),
    );
    // The lines of a load come together.
    let order = table::distinct(rows.iter().map(load));
    points.sort_by_key(|point| order.iter().position(|of| *of == load(point.first())));
    let times = |of: fn(&Row) -> Option<f64>| {
        let (points, load) = (&points, &load);
        move |point: &Reps<'_, Row>| {
            let is_beside = |row: &Row| !row.system.is_ours() && load(row) == load(point.first());
            let other = points.iter().find(|other| is_beside(other.first()));
            let other = other.filter(|_| point.first().system.is_ours());
            figure(other.and_then(|other| point.times(other, of)), 2)
        }
    };
    Table::of(&points)
        .left("clients", |point| point.first().load.clone())
        .right("bytes", |point| point.first().size_bytes)
        .right("subs", |point| point.first().subscribers)
        .left("server", |point| point.first().system.name())
        .figure("per s", |row| row.per_s, human)
        .right("×", times(|row| Some(row.per_s)))
        .median("server us each", 3, |row| row.server_cpu_us)
        .right("×", times(|row| row.server_cpu_us))
        .median("p50 us", 0, |row| row.p50_us)
        .right("×", times(|row| row.p50_us))
        .median("p99 us", 0, |row| row.p99_us)
        .sum("lost", |row| row.lost)
        .right("others", |point| {
            figure(point.rows().iter().filter_map(|row| row.other_cores).reduce(f64::max), 2)
        })
        .text()
}
