//! Tables and plots of the rows.

use benchkit::plot::Chart;
use benchkit::report::Report;
use benchkit::stats;
use benchkit::table::{self, Reps, Table};

use crate::failure::Result;
use crate::row::Row;

pub fn run(report: &Report) -> Result<()> {
    let rows: Vec<Row> = report.rows()?;
    let mut text = report.head("RBLive beside others", &rows[0].kernel);
    let all = Rows(&rows);
    for table in
        [receive(all), serve(all), most(all), peers(all), wrk(all), latency(all), ingest(all), memory(all)]
    {
        text.push_str(&table);
    }
    Ok(report.publish("live", &text, &plots(all), &rows)?)
}

#[derive(Clone, Copy)]
struct Rows<'a>(&'a [Row]);

type Point<'a> = Reps<'a, Row>;

fn load(row: &Row) -> (&str, u32, f64) {
    (&row.part, row.nodes, row.incoming_mbit)
}

impl<'a> Rows<'a> {
    fn part(self, part: &str) -> impl Iterator<Item = &'a Row> {
        self.0.iter().filter(move |row| row.part == part)
    }

    /// Each system under each load, in the order of the measurements.
    fn points(self, part: &str) -> Vec<Point<'a>> {
        let same = |one: &Row, other: &Row| one.system == other.system && load(one) == load(other);
        table::points(self.part(part), |row| row.rep, same)
    }

    /// The median of a value of another system under the load of a row.
    fn of(self, like: &Row, system: &str, value: impl Fn(&Row) -> f64) -> f64 {
        let same = |row: &&Row| row.system == system && load(row) == load(like);
        stats::median(self.0.iter().filter(same).map(value)).unwrap_or(f64::NAN)
    }

    /// How many times the value of another system this one's is.
    fn times(self, point: &Point<'_>, system: &str, value: impl Fn(&Row) -> f64 + Copy) -> String {
        format!("{:.2}", own(point, value) / self.of(point.first(), system, value))
    }

    /// Processor time that a node takes for what it receives, of the part `receive` under the same load.
    fn receiving(self, like: &Row) -> f64 {
        self.of(&Row { part: "receive".into(), ..like.clone() }, &like.system, |row| row.cores)
    }

    /// The processor seconds of a delivery node per Gbit to viewers, without what receiving takes.
    fn serving(self, like: &Row) -> f64 {
        let receiving = self.receiving(like);
        self.of(like, &like.system, |row| (row.cores - receiving) / (row.mbit_per_s / 1000.0))
    }

    /// The Mbit/s to viewers for which a core suffices beside what comes in.
    fn capacity(self, like: &Row) -> f64 {
        (1.0 - self.receiving(like)) / self.serving(like) * 1000.0
    }
}

fn own(point: &Point<'_>, value: impl Fn(&Row) -> f64) -> f64 {
    point.median(value).unwrap_or(f64::NAN)
}

fn per_gbit(row: &Row) -> f64 {
    row.cores / (row.mbit_per_s / 1000.0)
}

/// A table of points, whose first column is their system, with its title and a note.
fn section<'t>(
    [title, note, system]: [&str; 3],
    points: &'t [Point<'t>],
    columns: impl FnOnce(Table<'t, Point<'t>>) -> Table<'t, Point<'t>>,
) -> String {
    let table = columns(Table::of(points).left(system, |point| point.first().system.clone()));
    format!("\n## {title}\n\n{note}\n\n{}", table.text())
}

fn receive(rows: Rows<'_>) -> String {
    let title = "A delivery node that receives";
    let note = "Streams of 2 Mbit/s in chunks of two seconds, no viewers. Cores: processor seconds of the node per second.";
    section([title, note, "system"], &rows.points("receive"), |table| {
        let cores = |row: &Row| row.cores;
        table
            .right("incoming Mbit/s", |point| point.first().incoming_mbit)
            .median("cores", 4, cores)
            .right("of Redis'", move |point| rows.times(point, "redis", cores))
    })
}

fn serve(rows: Rows<'_>) -> String {
    let title = "A delivery node that receives and serves";
    let note = "The same with viewers over TLS 1.3 and HTTP/1.1. Capacity: what a core serves beside what comes in, by these figures.";
    section([title, note, "system"], &rows.points("serve"), |table| {
        table
            .right("incoming Mbit/s", |point| point.first().incoming_mbit)
            .right("viewers", |point| point.first().viewers)
            .median("Mbit/s to viewers", 0, |row| row.mbit_per_s)
            .median("cores", 4, |row| row.cores)
            .right("of these, receiving", move |point| format!("{:.4}", rows.receiving(point.first())))
            .right("core s per Gbit served", move |point| format!("{:.4}", rows.serving(point.first())))
            .right("capacity Mbit/s", move |point| format!("{:.0}", rows.capacity(point.first())))
            .right("of Redis'", move |point| {
                let redis = Row { system: "redis".into(), ..point.first().clone() };
                format!("{:.2}", rows.capacity(point.first()) / rows.capacity(&redis))
            })
            .right("errors", |point| own(point, |row| row.errors as f64))
    })
}

fn most(rows: Rows<'_>) -> String {
    let title = "The most viewers without an error";
    let note = "The node has only a share of a core, so that it and not the load ends first. Found by `rblive-load watch --find-max`.";
    section([title, note, "system"], &rows.points("most"), |table| {
        let viewers = |row: &Row| row.viewers as f64;
        table
            .right("share of a core", |point| point.first().share.unwrap_or(1.0))
            .right("incoming Mbit/s", |point| point.first().incoming_mbit)
            .median("viewers", 0, viewers)
            .median("Mbit/s to viewers", 0, |row| row.mbit_per_s)
            .right("of Redis'", move |point| rows.times(point, "redis", viewers))
            .right("what happened with more", |point| point.first().first_error.clone().unwrap_or_default())
    })
}

/// How many times what a server takes nginx takes.
fn of_nginx(rows: Rows<'_>, point: &Point<'_>) -> String {
    format!("{:.2}", rows.of(point.first(), "nginx", per_gbit) / own(point, per_gbit))
}

fn peers(rows: Rows<'_>) -> String {
    let title = "Servers of the same segments";
    let note = "20 streams of 2 Mbit/s; TLS 1.3, HTTP/1.1. RBLive serves out of its rings, and its figures include what it receives; the \
         others serve files in memory, which cost them nothing to get.";
    section([title, note, "server"], &rows.points("peers"), |table| {
        table
            .right("viewers", |point| point.first().viewers)
            .median("Mbit/s", 0, |row| row.mbit_per_s)
            .median("cores", 4, |row| row.cores)
            .median("core s per Gbit", 4, per_gbit)
            .median("viewers per core", 0, |row| row.viewers as f64 / row.cores)
            .right("of nginx'", move |point| of_nginx(rows, point))
            .median("generator's cores", 3, |row| row.generator_cores)
            .right("errors", |point| own(point, |row| row.errors as f64))
    })
}

fn wrk(rows: Rows<'_>) -> String {
    let title = "The same servers under another load";
    let note = "`wrk` with 32 connections fetches the newest segment of one stream as fast as it comes; core seconds by what the server took.";
    section([title, note, "server"], &rows.points("wrk"), |table| {
        table
            .median("Mbit/s", 0, |row| row.mbit_per_s)
            .median("cores", 3, |row| row.cores)
            .median("core s per Gbit", 4, per_gbit)
            .right("of nginx'", move |point| of_nginx(rows, point))
            .right("errors", |point| point.first().first_error.clone().unwrap_or_else(|| "none".into()))
    })
}

fn latency(rows: Rows<'_>) -> String {
    let title = "Latency of a chunk";
    let note = "From the last byte of a chunk of 500 KB into an ingest node (HTTP) to its first byte at a viewer (TLS) that waits for it at a \
         delivery node; 200 chunks, nothing else running.";
    section([title, note, "system"], &rows.points("latency"), |table| {
        let at = |percent| move |row: &Row| stats::quantile(&row.times_us, percent) as f64 / 1000.0;
        table.median("p50 ms", 2, at(50)).median("p99 ms", 2, at(99))
    })
}

fn ingest(rows: Rows<'_>) -> String {
    let title = "Ingest with TLS";
    let note = "Eight producers that send chunks of 500 KB as fast as they are taken, with the dissemination node on one core, and all producers \
         and delivery nodes on the other one.";
    section([title, note, "system"], &rows.points("ingest"), |table| {
        let rate = |row: &Row| row.mbit_per_s;
        table
            .right("delivery nodes", |point| point.first().nodes)
            .median("Mbit/s", 0, rate)
            .right("of Redis'", move |point| rows.times(point, "redis", rate))
            .median("core s per Gbit", 3, per_gbit)
            .right("of Redis'", move |point| rows.times(point, "redis", per_gbit))
            .right("programs", |point| {
                let programs = point.first().cores_by_program.iter();
                let programs = programs.map(|(name, cores)| format!("{name} {cores:.2}"));
                programs.collect::<Vec<_>>().join(", ")
            })
    })
}

fn memory(rows: Rows<'_>) -> String {
    let first: Vec<&Row> = rows.part("memory").filter(|row| row.rep == 0).collect();
    let idle = first.iter().find(|row| row.viewers == 0).map_or(0.0, |row| row.memory_mib);
    let table = Table::of(&first)
        .left("viewers", |row| row.viewers)
        .right("MiB", |row| format!("{:.0}", row.memory_mib))
        .right("buffers MiB", |row| format!("{:.0}", row.buffers_mib))
        .right("beyond the buffers", |row| format!("{:.1}", row.memory_mib - row.buffers_mib))
        .right("KiB per viewer", |row| match row.viewers {
            0 => String::new(),
            viewers => format!("{:.1}", (row.memory_mib - idle) * 1024.0 / viewers as f64),
        });
    format!(
        "\n## Memory of a delivery node\n\n1,000 streams of 2 Mbit/s over TCP, after each buffer went round once; then with viewers of \
         20 of them.\n\n{}",
        table.text()
    )
}

fn plots(rows: Rows<'_>) -> Vec<(String, String)> {
    let chart = |part: &str, title, x, y, at: &dyn Fn(&Row) -> f64, value: &dyn Fn(&Row) -> f64| {
        let own: Vec<&Row> = rows.part(part).collect();
        let chart = Chart::new(title, x, y);
        (!own.is_empty())
            .then(|| chart.points(&own, |row| row.system.clone(), |row| at(row), |row| value(row)).svg())
    };
    let incoming = |row: &Row| row.incoming_mbit;
    let title = "What a core serves beside what comes in";
    let receive =
        chart("receive", "A delivery node that receives", "incoming Mbit/s", "cores", &incoming, &|row| {
            row.cores
        });
    let capacity =
        chart("serve", title, "incoming Mbit/s", "Mbit/s to viewers", &incoming, &|row| rows.capacity(row));
    let nodes = |row: &Row| f64::from(row.nodes);
    let ingest =
        chart("ingest", "Ingest with TLS", "delivery nodes", "Mbit/s", &nodes, &|row| row.mbit_per_s);
    let all = [("receive", receive), ("capacity", capacity), ("ingest", ingest)];
    all.into_iter().filter_map(|(name, svg)| Some((name.to_owned(), svg?))).collect()
}
