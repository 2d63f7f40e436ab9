//! `rblive serve`: a node in the foreground.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rblive::RsManager;
use rblive_ingest::Ingest;

use super::config::Config;
use super::control::Endpoint;
use super::deliver::Viewers;
use super::failure::Failure;
use super::stop::Stop;

/// How long queued data may take to leave when the node stops.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive serve
  ffmpeg -re -i FILE -c copy -f flv rtmp://127.0.0.1/live/camera
  rblive config > node.toml; rblive serve --config node.toml --node delivery1
  curl -X PUT http://127.0.0.1:7480/streams/ID/nodes/2      # let node 2 have a stream")]
pub struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE", env = "RBLIVE_CONFIG")]
    config: Option<PathBuf>,
    /// Which of the configuration's nodes this process is
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Address for encoders over RTMP
    #[arg(long, value_name = "ADDRESS")]
    rtmp: Option<String>,
    /// Address for encoders over HTTP (PUT and POST)
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Address for viewers
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the control page, metrics included
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
}

/// Runs the node until a signal ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = configured(args)?;
    let stop = Stop::install()?;
    let rs = RsManager::new(config.node).map_err(Failure::failed)?;
    let viewers = match rs.node().role.delivers() && !config.deliver.listen.is_empty() {
        true => Some(Viewers::start(&rs, &config.deliver)?),
        false => None,
    };
    let ingest = match rs.node().role.disseminates() {
        true => Some(Arc::new(Ingest::start(rs.clone(), config.ingest).map_err(Failure::failed)?)),
        false => None,
    };
    let control = match config.control.listen.as_str() {
        "" => None,
        _ => Some(Endpoint::start(rs.clone(), ingest.clone(), &config.control)?),
    };
    let mut out = std::io::stdout();
    let said = ready(&rs, (control.as_ref(), viewers.as_ref(), ingest.as_deref()));
    out.write_all(said.as_bytes()).map_err(|error| Failure::output(&error))?;
    stop.wait(|| viewers.iter().for_each(Viewers::reload));
    drop((control, ingest, viewers));
    rs.shutdown(GRACE);
    Ok(())
}

/// The configuration, with what the arguments change.
fn configured(args: &Args) -> Result<Config, Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    let changes = [
        (&args.node, &mut config.node.node),
        (&args.rtmp, &mut config.ingest.rtmp),
        (&args.http, &mut config.ingest.http),
        (&args.listen, &mut config.deliver.listen),
        (&args.control, &mut config.control.listen),
    ];
    for (given, setting) in changes {
        if let Some(given) = given {
            setting.clone_from(given);
        }
    }
    Ok(config)
}

/// The lines that the command prints when the node is ready.
fn ready(
    rs: &RsManager,
    (control, viewers, ingest): (Option<&Endpoint>, Option<&Viewers>, Option<&Ingest>),
) -> String {
    let node = rs.node();
    let mut said = format!("rblive: node {} ({})", node.name, node.id);
    if let Some(address) = rs.address() {
        said += &format!("; takes streams of other nodes at {address}");
    }
    if let Some(ingest) = ingest {
        let addresses = ingest.addresses();
        for (scheme, address) in [
            ("rtmp", addresses.rtmp),
            ("rtmps", addresses.rtmps),
            ("http", addresses.http),
            ("https", addresses.https),
        ] {
            said += &address
                .map_or(String::new(), |address| format!("; encoders at {scheme}://{address}/live/NAME"));
        }
    }
    if let Some(viewers) = viewers {
        said += &format!("; viewers at {}", viewers.address());
    }
    if let Some(control) = control {
        said += &format!("; control and metrics at http://{}", control.address());
    }
    said + "\n"
}
