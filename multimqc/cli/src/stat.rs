//! `multimqc stat`.

use std::path::PathBuf;
use std::time::Duration;

use commands::{Failure, Stop, print};
use serde_json::{Value, json};

use super::config;
use super::control;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  multimqc stat
  multimqc stat --interval 10s
  multimqc stat --json | jq '.topics[0].levels'

`stays` is how long a byte can be read from a level at the rate of the interval.")]
pub struct Args {
    /// The server's control socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The time over which rates are measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = settings::time_argument)]
    interval: Duration,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let path = args.control.clone().unwrap_or_else(config::default_control);
    let before = control::ask(&path)?;
    if stop.wait(Some(args.interval)) {
        return Ok(());
    }
    let mut report = control::ask(&path)?;
    add_rates(&mut report, &before);
    let text = if args.json { format!("{report}\n") } else { table(&report) };
    print(text)
}

/// Adds the rate of each topic, and how long a byte stays in each level at this rate.
fn add_rates(report: &mut Value, before: &Value) {
    let seconds = number(report, "uptime_s") - number(before, "uptime_s");
    let earlier = before["topics"].as_array().cloned().unwrap_or_default();
    for topic in report["topics"].as_array_mut().into_iter().flatten() {
        let head = earlier
            .iter()
            .find(|other| other["id"] == topic["id"])
            .map_or(0.0, |other| number(other, "head"));
        let rate = if seconds > 0.0 { (number(topic, "head") - head).max(0.0) / seconds } else { 0.0 };
        topic["bytes_per_second"] = json!(rate);
        for level in topic["levels"].as_array_mut().into_iter().flatten() {
            let capacity = level["capacity_bytes"].as_f64();
            level["stays_s"] = json!(capacity.filter(|_| rate > 0.0).map(|capacity| capacity / rate));
        }
    }
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or(0.0)
}

/// The table for people.
fn table(report: &Value) -> String {
    let mut text = String::new();
    for topic in report["topics"].as_array().into_iter().flatten() {
        let rate = number(topic, "bytes_per_second");
        text += &format!("topic {}: ends at {}, {} B/s\n", topic["id"], topic["head"], rate.round());
        text += &format!(
            "  {:<8} {:>16} {:>16} {:>14} {:>12} {:>12} {:>10} {:>12}\n",
            "level", "first", "head", "capacity", "stays", "hits", "misses", "in holes"
        );
        for level in topic["levels"].as_array().into_iter().flatten() {
            text += &format!(
                "  {:<8} {:>16} {:>16} {:>14} {:>12} {:>12} {:>10} {:>12}\n",
                level["level"].as_str().unwrap_or("?"),
                level["first"].to_string(),
                level["head"].to_string(),
                level["capacity_bytes"].as_u64().map_or("no limit".into(), |bytes| bytes.to_string()),
                level["stays_s"].as_f64().map_or("always".into(), time),
                level["hits"].to_string(),
                level["misses"].to_string(),
                level["hole_bytes"].to_string(),
            );
        }
    }
    for pair in report["transfers"].as_array().into_iter().flatten() {
        text += &format!(
            "{} to {}: {} batches, at most {} us, {} failures, {} bytes in holes{}\n",
            pair["from"].as_str().unwrap_or("?"),
            pair["to"].as_str().unwrap_or("?"),
            pair["batches"],
            pair["longest_us"],
            pair["failures"],
            pair["hole_bytes"],
            pair["last_error"].as_str().map_or(String::new(), |error| format!("; {error}")),
        );
    }
    text += &troubles(report);
    let service = &report["service"];
    text += &format!(
        "{} pushes ({} refused, {} lost), {} pulls, {} other datagrams\n",
        service["pushes"],
        service["refused"],
        service["lost"],
        service["pulls"],
        number(service, "foreign") + number(service, "version") + number(service, "broken"),
    );
    text
}

/// Lines about an interface that is gone, and about bytes that have new offsets.
fn troubles(report: &Value) -> String {
    let mut text = String::new();
    if report["kernel"]["attached"] == false {
        text += &format!(
            "kernel: the interface {} is gone\n",
            report["kernel"]["interface"].as_str().unwrap_or("?")
        );
    }
    for repair in report["repairs"].as_array().into_iter().flatten() {
        text += &format!(
            "topic {}: {} bytes of {} have moved from {} to {} ({} lost)\n",
            repair["topic"],
            repair["bytes"],
            repair["lower"].as_str().unwrap_or("?"),
            repair["from"],
            repair["to"],
            repair["lost_bytes"],
        );
    }
    text
}

/// A time in the unit that suits it.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_stays_as_long_as_the_capacity_lasts() {
        let topic = |head: u64| {
            json!({ "id": 1, "head": head, "levels": [{ "level": "user", "first": 0, "head": head,
            "capacity_bytes": 1000, "hits": 1, "misses": 0, "hole_bytes": 0 }] })
        };
        let before = json!({ "uptime_s": 10.0, "topics": [topic(100)] });
        let mut after = json!({ "uptime_s": 12.0, "topics": [topic(300)], "service": {} });
        add_rates(&mut after, &before);
        assert_eq!(after["topics"][0]["bytes_per_second"], 100.0);
        assert_eq!(after["topics"][0]["levels"][0]["stays_s"], 10.0);
        let shown = table(&after);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[2].contains("10.0 s") && lines[1].len() == lines[2].len(),
            "columns have their width: {shown}"
        );
        add_rates(&mut after, &before.clone());
    }

    #[test]
    fn times_have_a_unit() {
        let shown = [0.003, 1.0, 480.0, 8640.0, 511_200.0].map(time);
        assert_eq!(shown, ["3.0 ms", "1.0 s", "8.0 min", "2.4 h", "6 days"]);
    }
}
