//! `rblive serve`: a node in the foreground.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rblive::RsManager;

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
  rblive config > node.toml; rblive serve --config node.toml --node delivery1
  curl -X PUT http://127.0.0.1:7480/streams/ID/nodes/2      # let node 2 have a stream")]
pub struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE", env = "RBLIVE_CONFIG")]
    config: Option<PathBuf>,
    /// Which of the configuration's nodes this process is
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Address for viewers
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the control page, metrics included
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
}

/// Runs the node until a signal ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    if let Some(node) = &args.node {
        config.node.node.clone_from(node);
    }
    if let Some(listen) = &args.control {
        config.control.listen.clone_from(listen);
    }
    if let Some(listen) = &args.listen {
        config.deliver.listen.clone_from(listen);
    }
    let stop = Stop::install()?;
    let rs = RsManager::new(config.node).map_err(Failure::failed)?;
    let viewers = match rs.node().role.delivers() && !config.deliver.listen.is_empty() {
        true => Some(Viewers::start(&rs, &config.deliver)?),
        false => None,
    };
    let control = match config.control.listen.as_str() {
        "" => None,
        _ => Some(Endpoint::start(rs.clone(), &config.control)?),
    };
    let mut out = std::io::stdout();
    let said = ready(&rs, control.as_ref(), viewers.as_ref());
    out.write_all(said.as_bytes()).map_err(|error| Failure::output(&error))?;
    stop.wait();
    drop((control, viewers));
    rs.shutdown(GRACE);
    Ok(())
}

/// What the command prints when the node is ready.
fn ready(rs: &RsManager, control: Option<&Endpoint>, viewers: Option<&Viewers>) -> String {
    let node = rs.node();
    let mut said = format!("rblive: node {} ({})", node.name, node.id);
    if let Some(address) = rs.address() {
        said += &format!("; takes streams of other nodes at {address}");
    }
    if let Some(viewers) = viewers {
        said += &format!("; viewers at {}", viewers.address());
    }
    if let Some(control) = control {
        said += &format!("; control and metrics at http://{}", control.address());
    }
    said + "\n"
}
