//! Tables and plots of the rows of `multimqc-bench`.

use benchkit::output::human;
use benchkit::plot::Chart;
use benchkit::report::Report;
use benchkit::stats;
use benchkit::table::{self, Reps, Table, distinct};
use commands::Failure;

use crate::measure::row::Row;

/// Bytes of a batch where nothing else is said.
const USUAL_BATCH: u64 = 32 << 10;

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

type Point<'r> = Reps<'r, Row>;

/// The median of a value of these rows.
fn median(point: &Point<'_>, value: impl Fn(&Row) -> f64) -> f64 {
    point.median(value).unwrap_or(f64::NAN)
}

fn rate(point: &Point<'_>) -> f64 {
    median(point, |row| row.messages_per_s)
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

/// Rows of the same system, generator and size: by size and generator, and then in the order in which systems were measured.
fn points(rows: &[Row]) -> Vec<Point<'_>> {
    let kind = |row: &Row| (row.series(), row.batch_bytes);
    let kinds = distinct(rows.iter().map(kind));
    let mut points =
        table::points(rows, |row| row.rep, |one, other| kind(one) == kind(other) && one.is_sent_as(other));
    points.sort_by_key(|point| {
        let row = point.first();
        let place = kinds.iter().position(|known| *known == kind(row));
        (row.payload_bytes, row.generator.clone(), row.placement.clone(), place)
    });
    points
}

/// Processor time of the generator alone for a message of this size, from the rows that drop the message, in nanoseconds.
fn generator_ns(rows: &[Row], like: &Row) -> f64 {
    let same = rows.iter().filter(|row| row.system == "drop" && row.is_sent_as(like));
    stats::median(same.map(|row| row.total_cpu_ns_per_message)).unwrap_or(f64::NAN)
}

/// Processor time of the machine that receives a message: all but the generator's, in nanoseconds.
fn receiver_ns(rows: &[Row], point: &Point<'_>) -> f64 {
    (median(point, |row| row.total_cpu_ns_per_message) - generator_ns(rows, point.first())).max(0.0)
}

fn write_table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let points = points(rows);
    let bases = |point: &Point<'_>| {
        let size = (point.first().payload_bytes, &point.first().generator);
        let is_base = move |other: &Row| {
            other.system == "standalone" && (other.payload_bytes, &other.generator) == size
        };
        points.iter().filter(move |other| is_base(other.first())).collect::<Vec<_>>()
    };
    let same =
        |point: &Point<'_>| bases(point).into_iter().find(|base| base.first().is_sent_as(point.first()));
    let best =
        |point: &Point<'_>| bases(point).into_iter().max_by(|one, other| rate(one).total_cmp(&rate(other)));
    let of_core = |point: &Point<'_>| 1e9 / receiver_ns(rows, point);
    let is_generator = |point: &Point<'_>| point.first().system == "drop";
    let times = |point: &Point<'_>, base: Option<&Point<'_>>, of: &dyn Fn(&Point<'_>) -> f64| match base {
        Some(base) if !is_generator(point) => format!("{:.1}", of(point) / of(base)),
        _ => "-".to_owned(),
    };
    let table = Table::of(&points)
        .right("bytes", |point| point.first().payload_bytes)
        .left("generator", |point| {
            let Row { generator, placement, .. } = point.first();
            let placement = placement.as_ref().map(|placement| format!(", {placement}"));
            format!("{}{}", generator.as_deref().unwrap_or_default(), placement.unwrap_or_default())
        })
        .left("system", |point| point.first().series())
        .figure("messages/s", |row| row.messages_per_s, human)
        .figure("lost", |row| 100.0 * row.lost as f64 / row.sent.max(1) as f64, |lost| format!("{lost:.1} %"))
        .median("server ns", 0, |row| row.cpu_ns_per_message)
        .right("receiver ns", |point| format!("{:.0}", receiver_ns(rows, point)))
        .right("a core", |point| match of_core(point) {
            messages if messages.is_finite() && !is_generator(point) => human(messages),
            _ => "-".to_owned(),
        })
        .right("rate x", |point| times(point, same(point), &rate))
        .right("a core x", |point| times(point, same(point), &of_core))
        .right("best x", |point| times(point, best(point), &rate));
    format!(
        "\n## Write\n\nMessages that reach the last level. `receiver` is the processor time of everything but the generator \
         (the total less that of the row `drop`), and `a core` the messages of one second of it. `server` is the server's process \
         alone. The columns with x divide by the standalone middleware of the same size: under the same load, and `best x` where it \
         is fastest.\n\n{}",
        table.text()
    )
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
        let rate =
            stats::median(of_size.map(|row| row.messages_per_s)).unwrap_or(f64::NAN) * f64::from(*size);
        (format!("as measured at {size} B, {:.0} MB/s", rate / 1e6), rate)
    }));
    let mut table = Table::of(&WINDOWS)
        .left("level", |(level, _)| *level)
        .right("window", |(_, mebibytes)| format!("{mebibytes} MiB"));
    for (name, rate) in rates {
        table = table
            .right(name, move |(_, mebibytes)| format!("{:.2} s", mebibytes * f64::from(1 << 20) / rate));
    }
    format!(
        "\n## How long a byte stays in a level\n\nThe window divided by the rate (table II of the paper). `multimqc stat` shows it \
         for a running server.\n\n{}",
        table.text()
    )
}

fn read_table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let points = points(rows);
    let p50 = |row: &Row| row.rtt_p50_us.unwrap_or(f64::NAN);
    let base = |point: &Point<'_>, of: fn(&Row) -> f64| {
        let is_base =
            |row: &Row| row.system == "standalone" && row.payload_bytes == point.first().payload_bytes;
        points.iter().find(|other| is_base(other.first())).map_or(f64::NAN, |base| median(base, of))
    };
    let table = Table::of(&points)
        .right("bytes", |point| point.first().payload_bytes)
        .left("system", |point| point.first().series())
        .figure("replies/s", |row| row.messages_per_s, human)
        .median("server ns", 0, |row| row.cpu_ns_per_message)
        .median("all ns", 0, |row| row.total_cpu_ns_per_message)
        .median("p50 us", 1, p50)
        .median("p99 us", 1, |row| row.rtt_p99_us.unwrap_or(f64::NAN))
        .right("rate x", |point| format!("{:.2}", rate(point) / base(point, |row| row.messages_per_s)))
        .right("p50 x", |point| format!("{:.2}", base(point, p50) / median(point, p50)));
    format!(
        "\n## Read\n\nReplies to a client with 32 pulls under way, and round trips of one pull at a time.\n\n{}",
        table.text()
    )
}

/// Pulls as frames, of which there are always more than are answered.
fn read_frames_table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let points = points(rows);
    let p50 = |point: &Point<'_>| median(point, |row| row.rtt_p50_us.unwrap_or(f64::NAN));
    let users = |point: &Point<'_>| {
        let size = point.first().payload_bytes;
        points
            .iter()
            .filter(move |other| other.first().level == "user" && other.first().payload_bytes == size)
    };
    let best = |point: &Point<'_>| users(point).map(rate).fold(f64::NAN, f64::max);
    // Nothing of a point without another to divide by, and of the generator alone.
    let cell =
        |point: &Point<'_>, digits: usize, of: &dyn Fn(&Point<'_>, &Point<'_>) -> f64| match users(point)
            .find(|user| user.first().is_sent_as(point.first()))
        {
            Some(base) if point.first().system != "drop" => format!("{:.digits$}", of(point, base)),
            _ => "-".to_owned(),
        };
    let p99 = |point: &Point<'_>| median(point, |row| row.rtt_p99_us.unwrap_or(f64::NAN));
    let table = Table::of(&points)
        .right("bytes", |point| point.first().payload_bytes)
        .left("placement", |point| point.first().placement.clone().unwrap_or_default())
        .left("system", |point| point.first().series())
        .figure("replies/s", |row| row.messages_per_s, human)
        .right("answer ns", |point| cell(point, 0, &|own, _| receiver_ns(rows, own)))
        .right("p50 us", |point| cell(point, 1, &|own, _| p50(own)))
        .right("p99 us", |point| cell(point, 1, &|own, _| p99(own)))
        .right("p50 x", |point| cell(point, 2, &|own, base| p50(base) / p50(own)))
        .right("rate x", |point| cell(point, 1, &|own, base| rate(own) / rate(base)))
        .right("best x", |point| cell(point, 1, &|own, _| rate(own) / best(own)));
    format!(
        "\n## Read, with pulls as frames\n\nThe clients do not limit the rate: the kernel makes the pulls. `apart`: they come from \
         one processor, and the server has the other. `together`: both on one processor. `everywhere`: pulls come from each \
         processor. `answer ns` is the processor time of everything less that of the row `drop`, where pulls are dropped in the \
         driver; round trips are those of a client with a socket in the same placement. The columns with x divide by the level `user` \
         in the same placement, and the last one by `user` where it is fastest.\n\n{}",
        table.text()
    )
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
