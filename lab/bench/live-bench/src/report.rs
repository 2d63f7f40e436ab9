//! Tables and plots of the rows.

use std::fmt::Write;

use benchkit::plot::Chart;
use benchkit::report::Report;
use benchkit::stats;

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

impl<'a> Rows<'a> {
    fn part(self, part: &str) -> Vec<&'a Row> {
        self.0.iter().filter(|row| row.part == part).collect()
    }

    /// The median of a value over the repetitions of a system under one load.
    fn median(self, like: &Row, value: impl Fn(&Row) -> f64) -> f64 {
        self.of(like, &like.system, value)
    }

    /// The same of another system.
    fn of(self, like: &Row, system: &str, value: impl Fn(&Row) -> f64) -> f64 {
        let same = |row: &&Row| {
            row.part == like.part
                && row.system == system
                && row.nodes == like.nodes
                && row.incoming_mbit == like.incoming_mbit
        };
        stats::median(self.0.iter().filter(same).map(value)).unwrap_or(f64::NAN)
    }

    /// A row of each system and load, in the order of the measurements.
    fn first(self, part: &str) -> impl Iterator<Item = &'a Row> {
        self.part(part).into_iter().filter(|row| row.rep == 0)
    }

    /// Processor time that a node takes for what it receives, of the part `receive` under the same load.
    fn receiving(self, like: &Row) -> f64 {
        self.of(&Row { part: "receive".into(), ..like.clone() }, &like.system, |row| row.cores)
    }
}

fn head(title: &str, note: &str, columns: &[&str]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<_> =
        columns.iter().enumerate().map(|(at, _)| if at == 0 { "---" } else { "---:" }).collect();
    format!("\n## {title}\n\n{note}\n\n{}{}", line(columns), line(&rule))
}

fn receive(rows: Rows<'_>) -> String {
    let mut text = head(
        "A delivery node that receives",
        "Streams of 2 Mbit/s in chunks of two seconds, no viewers. Cores: processor seconds of the node per second.",
        &["system", "incoming Mbit/s", "cores", "of Redis'"],
    );
    for row in rows.first("receive") {
        let cores = |row: &Row| row.cores;
        let (own, redis) = (rows.median(row, cores), rows.of(row, "redis", cores));
        let _ = writeln!(text, "| {} | {} | {own:.4} | {:.2} |", row.system, row.incoming_mbit, own / redis);
    }
    text
}

/// The processor seconds of a delivery node per Gbit to viewers, without what receiving takes.
fn serving(rows: Rows<'_>, row: &Row) -> f64 {
    let receiving = rows.receiving(row);
    rows.median(row, |row| (row.cores - receiving) / (row.mbit_per_s / 1000.0))
}

/// The Mbit/s to viewers for which a core suffices beside what comes in.
fn capacity(rows: Rows<'_>, row: &Row) -> f64 {
    (1.0 - rows.receiving(row)) / serving(rows, row) * 1000.0
}

fn serve(rows: Rows<'_>) -> String {
    let mut text = head(
        "A delivery node that receives and serves",
        "The same with viewers over TLS 1.3 and HTTP/1.1. Capacity: what a core serves beside what comes in, by these figures.",
        &[
            "system",
            "incoming Mbit/s",
            "viewers",
            "Mbit/s to viewers",
            "cores",
            "of these, receiving",
            "core s per Gbit served",
            "capacity Mbit/s",
            "of Redis'",
            "errors",
        ],
    );
    for row in rows.first("serve") {
        let redis = Row { system: "redis".into(), ..row.clone() };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.4} | {:.4} | {:.4} | {:.0} | {:.2} | {} |",
            row.system,
            row.incoming_mbit,
            row.viewers,
            rows.median(row, |row| row.mbit_per_s),
            rows.median(row, |row| row.cores),
            rows.receiving(row),
            serving(rows, row),
            capacity(rows, row),
            capacity(rows, row) / capacity(rows, &redis),
            rows.median(row, |row| row.errors as f64),
        );
    }
    text
}

fn most(rows: Rows<'_>) -> String {
    let mut text = head(
        "The most viewers without an error",
        "The node has only a share of a core, so that it and not the load ends first. Found by `rblive-load watch --find-max`.",
        &[
            "system",
            "share of a core",
            "incoming Mbit/s",
            "viewers",
            "Mbit/s to viewers",
            "of Redis'",
            "what happened with more",
        ],
    );
    for row in rows.first("most") {
        let viewers = |row: &Row| row.viewers as f64;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.0} | {:.2} | {} |",
            row.system,
            row.share.unwrap_or(1.0),
            row.incoming_mbit,
            rows.median(row, viewers),
            rows.median(row, |row| row.mbit_per_s),
            rows.median(row, viewers) / rows.of(row, "redis", viewers),
            row.first_error.as_deref().unwrap_or(""),
        );
    }
    text
}

fn peers(rows: Rows<'_>) -> String {
    let mut text = head(
        "Servers of the same segments",
        "20 streams of 2 Mbit/s; TLS 1.3, HTTP/1.1. RBLive serves out of its rings, and its figures include what it receives; the \
         others serve files in memory, which cost them nothing to get.",
        &[
            "server",
            "viewers",
            "Mbit/s",
            "cores",
            "core s per Gbit",
            "viewers per core",
            "of nginx'",
            "generator's cores",
            "errors",
        ],
    );
    for row in rows.first("peers") {
        let per_gbit = |row: &Row| row.cores / (row.mbit_per_s / 1000.0);
        let own = rows.median(row, per_gbit);
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.4} | {own:.4} | {:.0} | {:.2} | {:.3} | {} |",
            row.system,
            row.viewers,
            rows.median(row, |row| row.mbit_per_s),
            rows.median(row, |row| row.cores),
            rows.median(row, |row| row.viewers as f64 / row.cores),
            rows.of(row, "nginx", per_gbit) / own,
            rows.median(row, |row| row.generator_cores),
            rows.median(row, |row| row.errors as f64),
        );
    }
    text
}

fn wrk(rows: Rows<'_>) -> String {
    let mut text = head(
        "The same servers under another load",
        "`wrk` with 32 connections fetches the newest segment of one stream as fast as it comes; core seconds by what the server took.",
        &["server", "Mbit/s", "cores", "core s per Gbit", "of nginx'", "errors"],
    );
    for row in rows.first("wrk") {
        let per_gbit = |row: &Row| row.cores / (row.mbit_per_s / 1000.0);
        let own = rows.median(row, per_gbit);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.3} | {own:.4} | {:.2} | {} |",
            row.system,
            rows.median(row, |row| row.mbit_per_s),
            rows.median(row, |row| row.cores),
            rows.of(row, "nginx", per_gbit) / own,
            row.first_error.as_deref().unwrap_or("none"),
        );
    }
    text
}

fn latency(rows: Rows<'_>) -> String {
    let mut text = head(
        "Latency of a chunk",
        "From the last byte of a chunk of 500 KB into an ingest node (HTTP) to its first byte at a viewer (TLS) that waits for it at a \
         delivery node; 200 chunks, nothing else running.",
        &["system", "p50 ms", "p99 ms"],
    );
    for row in rows.first("latency") {
        let at = |percent| rows.median(row, |row| stats::quantile(&row.times_us, percent) as f64 / 1000.0);
        let _ = writeln!(text, "| {} | {:.2} | {:.2} |", row.system, at(50), at(99));
    }
    text
}

fn ingest(rows: Rows<'_>) -> String {
    let mut text = head(
        "Ingest with TLS",
        "Eight producers that send chunks of 500 KB as fast as they are taken, with the dissemination node on one core, and all producers \
         and delivery nodes on the other one.",
        &["system", "delivery nodes", "Mbit/s", "of Redis'", "core s per Gbit", "of Redis'", "programs"],
    );
    for row in rows.first("ingest") {
        let rate = |row: &Row| row.mbit_per_s;
        let per_gbit = |row: &Row| row.cores / (row.mbit_per_s / 1000.0);
        let (own, redis) = (rows.median(row, per_gbit), rows.of(row, "redis", per_gbit));
        let programs = row.cores_by_program.iter().map(|(name, cores)| format!("{name} {cores:.2}"));
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.2} | {own:.3} | {:.2} | {} |",
            row.system,
            row.nodes,
            rows.median(row, rate),
            rows.median(row, rate) / rows.of(row, "redis", rate),
            own / redis,
            programs.collect::<Vec<_>>().join(", "),
        );
    }
    text
}

fn memory(rows: Rows<'_>) -> String {
    let mut text = head(
        "Memory of a delivery node",
        "1,000 streams of 2 Mbit/s over TCP, after each buffer went round once; then with viewers of 20 of them.",
        &["viewers", "MiB", "buffers MiB", "beyond the buffers", "KiB per viewer"],
    );
    for row in rows.first("memory") {
        let idle = rows.first("memory").find(|own| own.viewers == 0).map_or(0.0, |own| own.memory_mib);
        let more = match row.viewers {
            0 => String::new(),
            viewers => format!("{:.1}", (row.memory_mib - idle) * 1024.0 / viewers as f64),
        };
        let beyond = row.memory_mib - row.buffers_mib;
        let (own, buffers) = (row.memory_mib, row.buffers_mib);
        let _ = writeln!(text, "| {} | {own:.0} | {buffers:.0} | {beyond:.1} | {more} |", row.viewers);
    }
    text
}

fn plots(rows: Rows<'_>) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    let own = |part: &str| rows.part(part).into_iter().cloned().collect::<Vec<Row>>();
    let name = |row: &Row| row.system.clone();
    let receive = own("receive");
    if !receive.is_empty() {
        let chart = Chart::new("A delivery node that receives", "incoming Mbit/s", "cores");
        plots.push((
            "receive".into(),
            chart.points(&receive, name, |row| row.incoming_mbit, |row| row.cores).svg(),
        ));
    }
    let serve = own("serve");
    if !serve.is_empty() {
        let chart =
            Chart::new("What a core serves beside what comes in", "incoming Mbit/s", "Mbit/s to viewers");
        let chart = chart.points(&serve, name, |row| row.incoming_mbit, |row| capacity(rows, row));
        plots.push(("capacity".into(), chart.svg()));
    }
    let ingest = own("ingest");
    if !ingest.is_empty() {
        let chart = Chart::new("Ingest with TLS", "delivery nodes", "Mbit/s");
        let chart = chart.points(&ingest, name, |row| f64::from(row.nodes), |row| row.mbit_per_s);
        plots.push(("ingest".into(), chart.svg()));
    }
    plots
}
