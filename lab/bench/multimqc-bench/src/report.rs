//! Tables and plots of the rows of `multimqc-bench`.

use std::collections::BTreeMap;
use std::fmt::Write;

use benchkit::output::human;
use benchkit::plot::Chart;
use benchkit::report::Report;
use benchkit::stats;
use commands::Failure;
use serde::{Deserialize, Serialize};

/// Bytes of a batch where nothing else is said.
const USUAL_BATCH: u64 = 32 << 10;

/// A row of `multimqc-bench`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    part: String,
    system: String,
    level: String,
    mode: String,
    kernel: String,
    generator: Option<String>,
    #[serde(default)]
    placement: Option<String>,
    payload_bytes: u16,
    batch_bytes: Option<u64>,
    rep: u32,
    messages_per_s: f64,
    cpu_ns_per_message: f64,
    sender_cpu_ns_per_message: f64,
    total_cpu_ns_per_message: f64,
    rtt_p50_us: Option<f64>,
    rtt_p99_us: Option<f64>,
    lost: u64,
    sent: u64,
}

impl Row {
    /// The name of its line in a plot.
    fn series(&self) -> String {
        match self.system.as_str() {
            "multimqc" if self.mode == "socket" => self.level.clone(),
            "multimqc" => match self.batch_bytes {
                Some(batch) if batch != USUAL_BATCH => {
                    format!("{} {}, batches of {batch} B", self.level, self.mode)
                }
                _ => format!("{} {}", self.level, self.mode),
            },
            other => other.to_owned(),
        }
    }

    /// The same where each placement has a line of its own.
    fn placed_series(&self) -> String {
        match &self.placement {
            Some(placement) => format!("{} {placement}", self.series()),
            None => self.series(),
        }
    }

    /// Whether another row's packets came in the same way, with the same size.
    fn is_sent_as(&self, other: &Row) -> bool {
        self.payload_bytes == other.payload_bytes && self.is_sent_like(other)
    }

    fn is_sent_like(&self, other: &Row) -> bool {
        (&self.generator, &self.placement) == (&other.generator, &other.placement)
    }

    fn has_usual_batch(&self) -> bool {
        self.batch_bytes.is_none_or(|batch| batch == USUAL_BATCH)
    }
}

/// The median of a value of these rows.
fn median<'a>(rows: impl Iterator<Item = &'a Row>, value: impl Fn(&Row) -> f64) -> f64 {
    stats::median(rows.map(value)).unwrap_or(f64::NAN)
}

pub fn run(report: &Report) -> Result<(), Failure> {
    let rows: Vec<Row> = report.rows()?;
    let kernel = format!("Linux {}", rows[0].kernel);
    let mut text = report.head("MultiMQC beside other receivers", &kernel);
    let (write, read): (Vec<Row>, Vec<Row>) = rows.iter().cloned().partition(|row| row.part == "write");
    let (frames, sockets): (Vec<Row>, Vec<Row>) = read.into_iter().partition(|row| row.generator.is_some());
    text.push_str(&write_table(&write));
    text.push_str(&windows_table(&write));
    text.push_str(&read_table(&sockets));
    text.push_str(&read_frames_table(&frames));
    let plots = [write_plots(&write), read_plots(&sockets), read_frames_plots(&frames)].concat();
    Ok(report.publish("multimqc", &text, &plots, &rows)?)
}

/// Rows of the same system, generator and size, in the order in which they were measured.
fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: BTreeMap<(u16, String, String, usize), Vec<&Row>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for row in rows {
        let name = format!("{}/{:?}", row.series(), row.batch_bytes);
        let place = order.iter().position(|known| *known == name).unwrap_or_else(|| {
            order.push(name);
            order.len() - 1
        });
        let of = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = (row.payload_bytes, of(&row.generator), of(&row.placement), place);
        groups.entry(key).or_default().push(row);
    }
    groups.into_values().collect()
}

/// Processor time of the generator alone for a message of this size, from the rows that drop the message, in nanoseconds.
fn generator_ns(rows: &[Row], like: &Row) -> f64 {
    let same = rows.iter().filter(|row| row.system == "drop" && row.is_sent_as(like));
    median(same, |row| row.total_cpu_ns_per_message)
}

/// Processor time of the machine that receives a message: all but the generator's, in nanoseconds.
fn receiver_ns(rows: &[Row], group: &[&Row]) -> f64 {
    let all = median(group.iter().copied(), |row| row.total_cpu_ns_per_message);
    (all - generator_ns(rows, group[0])).max(0.0)
}

fn write_table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let groups = groups(rows);
    let mut text = "\n## Write\n\nMessages that reach the last level. `receiver` is the processor time of everything but the generator \
         (the total less that of the row `drop`), and `a core` the messages of one second of it. `server` is the server's process \
         alone. The columns with x divide by the standalone middleware of the same size: under the same load, and `best x` where it \
         is fastest.\n\n\
         | bytes | generator | system | messages/s | lost | server ns | receiver ns | a core | rate x | a core x | best x |\n\
         |---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for group in &groups {
        let row = group[0];
        let rate = |group: &[&Row]| median(group.iter().copied(), |row| row.messages_per_s);
        let is_base = |other: &&Vec<&Row>| {
            let other = other[0];
            other.system == "standalone"
                && (other.payload_bytes, &other.generator) == (row.payload_bytes, &row.generator)
        };
        let bases = || groups.iter().filter(is_base);
        let same = bases().find(|other| other[0].is_sent_as(row));
        let best = bases().max_by(|one, other| rate(one).total_cmp(&rate(other)));
        let of_core = |group: &[&Row]| 1e9 / receiver_ns(rows, group);
        let is_generator = row.system == "drop";
        let times = |base: Option<&Vec<&Row>>, of: &dyn Fn(&[&Row]) -> f64| match base {
            Some(base) if !is_generator => format!("{:.1}", of(group) / of(base)),
            _ => "-".to_owned(),
        };
        let lost = median(group.iter().copied(), |row| 100.0 * row.lost as f64 / row.sent.max(1) as f64);
        let server = median(group.iter().copied(), |row| row.cpu_ns_per_message);
        let _ = writeln!(
            text,
            "| {} | {}{} | {} | {} | {lost:.1} % | {server:.0} | {:.0} | {} | {} | {} | {} |",
            row.payload_bytes,
            row.generator.as_deref().unwrap_or_default(),
            row.placement.as_ref().map(|placement| format!(", {placement}")).unwrap_or_default(),
            row.series(),
            human(rate(group)),
            receiver_ns(rows, group),
            if of_core(group).is_finite() && !is_generator { human(of_core(group)) } else { "-".to_owned() },
            times(same, &rate),
            times(same, &of_core),
            times(best, &rate),
        );
    }
    text
}

/// The windows of the bench's levels: what of the log is in each of them (table II of the paper).
const WINDOWS: [(&str, f64); 3] = [("kernel", 64.0), ("user", 56.0), ("disk", 256.0)];

/// How long a byte stays in each level, at the paper's rates and at those that were measured.
fn windows_table(rows: &[Row]) -> String {
    let is_whole = |row: &&Row| {
        (row.level.as_str(), row.mode.as_str()) == ("kernel,user,disk", "xdp-native")
            && row.batch_bytes == Some(USUAL_BATCH)
    };
    let mut sizes: Vec<u16> = rows.iter().filter(is_whole).map(|row| row.payload_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return String::new();
    }
    let mut rates: Vec<(String, f64)> =
        [1.0, 100.0, 300.0].map(|rate: f64| (format!("{rate} MB/s"), rate * 1e6)).to_vec();
    rates.extend(sizes.iter().map(|size| {
        let of_size = rows.iter().filter(is_whole).filter(|row| row.payload_bytes == *size);
        let rate = median(of_size, |row| row.messages_per_s) * f64::from(*size);
        (format!("as measured at {size} B, {:.0} MB/s", rate / 1e6), rate)
    }));
    let cells = |of: &dyn Fn(&(String, f64)) -> String| rates.iter().map(of).collect::<Vec<_>>().join(" | ");
    let mut text = format!(
        "\n## How long a byte stays in a level\n\nThe window divided by the rate (table II of the paper). `multimqc stat` shows it \
         for a running server.\n\n| level | window | {} |\n|---|---:|{}\n",
        cells(&|(name, _)| name.clone()),
        "---:|".repeat(rates.len())
    );
    for (level, mebibytes) in WINDOWS {
        let stays = cells(&|(_, rate)| format!("{:.2} s", mebibytes * f64::from(1 << 20) / rate));
        let _ = writeln!(text, "| {level} | {mebibytes} MiB | {stays} |");
    }
    text
}

fn read_table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "\n## Read\n\nReplies to a client with 32 pulls under way, and round trips of one pull at a time.\n\n\
         | bytes | system | replies/s | server ns | all ns | p50 us | p99 us | rate x | p50 x |\n\
         |---:|---|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let groups = groups(rows);
    for group in &groups {
        let row = group[0];
        let of = |group: &[&Row], value: &dyn Fn(&Row) -> f64| median(group.iter().copied(), value);
        let base = groups
            .iter()
            .find(|other| other[0].system == "standalone" && other[0].payload_bytes == row.payload_bytes);
        let rate = |row: &Row| row.messages_per_s;
        let p50 = |row: &Row| row.rtt_p50_us.unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.2} | {:.2} |",
            row.payload_bytes,
            row.series(),
            human(of(group, &rate)),
            of(group, &|row| row.cpu_ns_per_message),
            of(group, &|row| row.total_cpu_ns_per_message),
            of(group, &p50),
            of(group, &|row| row.rtt_p99_us.unwrap_or(f64::NAN)),
            base.map_or(f64::NAN, |base| of(group, &rate) / of(base, &rate)),
            base.map_or(f64::NAN, |base| of(base, &p50) / of(group, &p50)),
        );
    }
    text
}

/// Pulls as frames, of which there are always more than are answered.
fn read_frames_table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "\n## Read, with pulls as frames\n\nThe clients do not limit the rate: the kernel makes the pulls. `apart`: they come from \
         one processor, and the server has the other. `together`: both on one processor. `everywhere`: pulls come from each \
         processor. `answer ns` is the processor time of everything less that of the row `drop`, where pulls are dropped in the \
         driver; round trips are those of a client with a socket in the same placement. The columns with x divide by the level `user` \
         in the same placement, and the last one by `user` where it is fastest.\n\n\
         | bytes | placement | system | replies/s | answer ns | p50 us | p99 us | p50 x | rate x | best x |\n\
         |---:|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let groups = groups(rows);
    for group in &groups {
        let row = group[0];
        let rate = |group: &[&Row]| median(group.iter().copied(), |row| row.messages_per_s);
        let micros = |of: Option<f64>| of.unwrap_or(f64::NAN);
        let p50 = |group: &[&Row]| median(group.iter().copied(), |row| micros(row.rtt_p50_us));
        let p99 = median(group.iter().copied(), |row| micros(row.rtt_p99_us));
        let is_user =
            |other: &&Vec<&Row>| other[0].level == "user" && other[0].payload_bytes == row.payload_bytes;
        let base = groups.iter().filter(is_user).find(|other| other[0].is_sent_as(row));
        let best = groups.iter().filter(is_user).map(|user| rate(user)).fold(f64::NAN, f64::max);
        let start = format!(
            "| {} | {} | {} | {} |",
            row.payload_bytes,
            row.placement.as_deref().unwrap_or_default(),
            row.series(),
            human(rate(group))
        );
        let _ = match base {
            Some(base) if row.system != "drop" => writeln!(
                text,
                "{start} {:.0} | {:.1} | {p99:.1} | {:.2} | {:.1} | {:.1} |",
                receiver_ns(rows, group),
                p50(group),
                p50(base) / p50(group),
                rate(group) / rate(base),
                rate(group) / best,
            ),
            _ => writeln!(text, "{start} - | - | - | - | - | - |"),
        };
    }
    text
}

fn read_frames_plots(rows: &[Row]) -> Vec<(String, String)> {
    if rows.is_empty() {
        return Vec::new();
    }
    let chart = Chart::new("Read throughput, pulls as frames", "bytes of a range", "replies per second");
    let chart = chart.sizes().log_y();
    let svg = chart
        .points(rows, Row::placed_series, |row| f64::from(row.payload_bytes), |row| row.messages_per_s)
        .svg();
    vec![("read-frames-rate".into(), svg)]
}

/// Bytes that reach the last level, by the bytes of a batch (figure 13 of the paper).
fn batches_plot(rows: &[Row]) -> Option<(String, String)> {
    let other = rows.iter().find(|row| !row.has_usual_batch())?;
    let is_one =
        |row: &&Row| (&row.level, &row.mode) == (&other.level, &other.mode) && row.is_sent_like(other);
    let rows: Vec<Row> = rows.iter().filter(is_one).cloned().collect();
    let chart =
        Chart::new("Write throughput by batch", "bytes of a batch", "bytes per second").sizes().log_y();
    let batch = |row: &Row| row.batch_bytes.unwrap_or(USUAL_BATCH) as f64;
    let rate = |row: &Row| row.messages_per_s * f64::from(row.payload_bytes);
    let svg = chart.points(&rows, |row| format!("messages of {} B", row.payload_bytes), batch, rate).svg();
    Some(("write-batches".into(), svg))
}

fn write_plots(rows: &[Row]) -> Vec<(String, String)> {
    let mut plots: Vec<(String, String)> = batches_plot(rows).into_iter().collect();
    let rows: Vec<Row> = rows.iter().filter(|row| row.has_usual_batch()).cloned().collect();
    let mut generators: Vec<&str> = rows.iter().filter_map(|row| row.generator.as_deref()).collect();
    generators.dedup();
    for generator in generators {
        let some: Vec<Row> =
            rows.iter().filter(|row| row.generator.as_deref() == Some(generator)).cloned().collect();
        let chart = |title: &str, y: &str, value: &dyn Fn(&Row) -> f64| {
            let chart = Chart::new(title, "bytes of a message", y).sizes().log_y();
            chart.points(&some, Row::placed_series, |row| f64::from(row.payload_bytes), value).svg()
        };
        let rate = chart("Write throughput", "messages per second", &|row| row.messages_per_s);
        let cost = chart("Processor time of everything but the generator", "ns per message", &|row| {
            row.total_cpu_ns_per_message - generator_ns(&some, row)
        });
        plots.push((format!("write-{generator}-rate"), rate));
        plots.push((format!("write-{generator}-cost"), cost));
    }
    plots
}

fn read_plots(rows: &[Row]) -> Vec<(String, String)> {
    if rows.is_empty() {
        return Vec::new();
    }
    let chart = |title: &str, y: &str, value: &dyn Fn(&Row) -> f64| {
        let chart = Chart::new(title, "bytes of a range", y).sizes().log_y();
        chart.points(rows, Row::series, |row| f64::from(row.payload_bytes), value).svg()
    };
    vec![
        ("read-rate".into(), chart("Read throughput", "replies per second", &|row| row.messages_per_s)),
        ("read-rtt".into(), chart("Round trip", "us (median)", &|row| row.rtt_p50_us.unwrap_or(f64::NAN))),
    ]
}
