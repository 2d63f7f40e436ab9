//! A load that is not of this project.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::client::Http;
use crate::failure::Result;
use crate::lab::{LOAD, Program, on};
use crate::row::Row;

/// The longest time that is measured: segments do not stay.
const MOST_S: f64 = 6.0;

/// The newest segment again and again, as fast as it comes, by a load that is not of this project. `None`: it is not installed.
pub fn wrk(system: &str, rep: u32, seconds: f64, list: &str, program: &Program) -> Result<Option<Row>> {
    let Some(wrk) = benchkit::server::find("wrk") else { return Ok(None) };
    let (address, path) = list.trim_start_matches("https://").split_once('/').ok_or("a list has a path")?;
    let mut http = Http::connect(address, true)?;
    let mut get = |path: &str| -> Result<String> {
        http.get(&format!("/{path}"))?;
        Ok(String::from_utf8(http.answer()?.body)?)
    };
    let last = |text: &str| text.lines().rfind(|line| !line.starts_with('#')).unwrap_or("").to_owned();
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let mut path = path.to_owned();
    if path.ends_with("index.m3u8") {
        path = folder(&path) + &last(&get(&path)?);
    }
    let segment = format!("https://{address}/{}{}", folder(&path), last(&get(&path)?));
    let seconds = seconds.min(MOST_S);
    let mut command = on(LOAD, &wrk);
    command.args(["-t", "1", "-c", "32", "-d", &format!("{}s", seconds.ceil())]).arg(&segment);
    let child = command.stdout(Stdio::piped()).spawn()?;
    thread::sleep(Duration::from_secs(1));
    let before = program.cpu_s();
    let time_s = seconds.ceil() - 1.5;
    thread::sleep(Duration::from_secs_f64(time_s));
    let cores = (program.cpu_s() - before) / time_s;
    let text = String::from_utf8(child.wait_with_output()?.stdout)?;
    let mut row = Row::new("wrk", system, rep);
    (row.cores, row.viewers) = (cores, 32);
    row.mbit_per_s = transferred(&text).ok_or("wrk says no Transfer/sec")?;
    let failed = |line: &&str| line.contains("Non-2xx") || line.contains("Socket errors");
    row.first_error = text.lines().find(failed).map(str::to_owned);
    row.errors = u64::from(row.first_error.is_some());
    Ok(Some(row))
}

/// The Mbit per second that wrk says.
fn transferred(text: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("Transfer/sec:"))?.trim();
    let (number, unit) = value.split_at(value.find(|c: char| c.is_ascii_alphabetic())?);
    let unit = match unit {
        "GB" => f64::from(1 << 30),
        "MB" => f64::from(1 << 20),
        "KB" => f64::from(1 << 10),
        _ => 1.0,
    };
    Some(number.parse::<f64>().ok()? * unit * 8e-6)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rate_of_wrk_is_read() {
        let mbit = |text| super::transferred(text).unwrap();
        assert_eq!(mbit("x\nTransfer/sec:      1.00MB\n"), 8.388_608);
        assert_eq!(mbit("Transfer/sec:      2.50GB"), 2.5 * 8_589.934_592);
        assert_eq!(super::transferred("none"), None);
    }
}
