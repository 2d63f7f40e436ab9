//! `rblive serve`: a node in the foreground.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use commands::{Asked, Failure, Printer, Stop};
use rblive::RsManager;
use rblive_deliver::Settings;
use rblive_ingest::Ingest;
use rblive_record::{RecordRule, Recorder};
use tracing::level_filters::LevelFilter;

use super::cluster::member::Member;
use super::config::{Cluster, Config, LOG};
use super::control::{Endpoint, Parts};
use super::deliver::{Viewers, receive};
use super::exposure;

/// The parts of the node that take streams.
type Receivers = (Option<Arc<Recorder>>, Option<Arc<Viewers>>);

/// The time for queued data to be sent when the node stops.
const GRACE: Duration = Duration::from_secs(2);

/// Descriptors beside those of viewers: encoders, nodes, listeners, recordings.
const SPARE_DESCRIPTORS: usize = 256;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive serve --webrtc 127.0.0.1:8443
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
    /// Address for datagrams of viewers by WebRTC (UDP)
    #[arg(long, value_name = "ADDRESS")]
    webrtc: Option<String>,
    /// Address of the control page, metrics included
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
    /// Accept addresses for nodes and for the control page that other machines reach, also if nobody must prove who it is there
    #[arg(long)]
    insecure: bool,
}

/// Runs the node until a signal ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let _log = commands::log::start_server(LOG, LevelFilter::WARN)?;
    // Every node has the key of a certificate, and often tokens and keys of streams.
    if let Err(error) = commands::secrets::protect("RBLIVE_CORE_DUMPS") {
        tracing::warn!("secrets may be in core dumps of this process: {error}");
    }
    let mut config = configured(args)?;
    config.doubts().iter().for_each(|doubt| tracing::warn!("{doubt}"));
    if let Err(why) = exposure::check(&config) {
        if !args.insecure {
            return Err(Failure::Failed(format!(
                "{why}; or start with --insecure, in a network that you trust"
            )));
        }
        tracing::warn!("insecure: {why}");
    }
    let stop = Stop::install()?.with_reload()?;
    config.deliver.kept.extend(config.record.iter().map(|rule| rule.folder.clone()));
    let (mut deliver, webrtc) = (config.deliver, config.webrtc);
    let (rules, cluster) = (config.record, config.cluster);
    deliver.max_connections = connections_of_viewers(deliver.max_connections);
    let mut receivers = Ok((None, None));
    let rs = RsManager::prepared(config.node, |rs| {
        receivers = start_receivers(rs, &deliver, &webrtc, &cluster, rules)
    })
    .map_err(Failure::failed)?;
    let (recorder, viewers) = receivers?;
    let ingest = match rs.node().role.disseminates() {
        true => Some(Arc::new(Ingest::start(rs.clone(), config.ingest).map_err(Failure::failed)?)),
        false => None,
    };
    let member = Member::start(&rs, viewers.clone(), &cluster)?.map(Arc::new);
    let parts = Parts {
        ingest: ingest.clone(),
        recorder: recorder.clone(),
        member: member.clone(),
        viewers: viewers.as_ref().map(|viewers| viewers.address()),
    };
    let is_controlled = !config.control.listen.is_empty();
    let control = is_controlled.then(|| Endpoint::start(rs.clone(), parts, &config.control)).transpose()?;
    let printer = Printer::start(|text| tracing::warn!("{text}"))?;
    printer.print(ready(&rs, control.as_ref(), viewers.as_deref(), ingest.as_deref()).trim_end());
    wait(&stop, viewers.as_deref(), ingest.as_deref());
    // The others learn first that this node leaves.
    drop((control, member, ingest, viewers));
    rs.shutdown(GRACE);
    recorder.iter().for_each(|recorder| recorder.stop());
    Ok(())
}

/// Waits for the end, and reads certificates again when that is asked.
fn wait(stop: &Stop, viewers: Option<&Viewers>, ingest: Option<&Ingest>) {
    loop {
        match stop.wait_asked(None) {
            Some(Asked::End) => return,
            Some(Asked::Reload) => {
                viewers.iter().for_each(|viewers| viewers.reload());
                ingest.iter().for_each(|ingest| reload(ingest));
            }
            None => {}
        }
    }
}

/// How many connections of viewers leave descriptors to encoders, nodes and recordings, at most as many as configured.
fn connections_of_viewers(configured: usize) -> usize {
    let limit = usize::try_from(commands::descriptors::raise()).unwrap_or(usize::MAX);
    let most = limit.saturating_sub(SPARE_DESCRIPTORS).max(limit / 2);
    if most < configured {
        tracing::warn!(
            "{limit} descriptors are allowed: {most} connections of viewers are taken, not {configured} (deliver.max_connections); raise \
             the limit (ulimit -n, or LimitNOFILE of a service)"
        );
    }
    most.min(configured)
}

/// Starts the recorder and the web server, and sets the callbacks through which streams reach them.
fn start_receivers(
    rs: &RsManager,
    deliver: &Settings,
    webrtc: &rblive_webrtc::Settings,
    cluster: &Cluster,
    rules: Vec<RecordRule>,
) -> Result<Receivers, Failure> {
    let recorder = recorder(rs, rules)?;
    let viewers = match rs.node().role.delivers() && !deliver.listen.is_empty() {
        true => Some(Arc::new(Viewers::start_with(rs, deliver, webrtc, cluster, recorder.clone())?)),
        false => None,
    };
    if viewers.is_none() && webrtc.is_used() {
        tracing::warn!(
            "[webrtc] has no effect: the node has no address for viewers (deliver.listen), where offers arrive"
        );
    }
    if viewers.is_none() && recorder.is_some() {
        receive(rs, None, recorder.clone());
    }
    Ok((recorder, viewers))
}

/// Reads the certificate for encoders again. If that fails, the servers keep the one that they have.
fn reload(ingest: &Ingest) {
    let addresses = ingest.addresses();
    if addresses.rtmps.or(addresses.https).is_none() {
        return;
    }
    match ingest.reload() {
        Ok(()) => tracing::info!("the certificate for encoders was read again"),
        Err(error) => tracing::error!("the certificate for encoders stays as it was: {error}"),
    }
}

/// The recorder, if the node keeps streams.
fn recorder(rs: &RsManager, rules: Vec<RecordRule>) -> Result<Option<Arc<Recorder>>, Failure> {
    if rules.is_empty() {
        return Ok(None);
    }
    if !rs.node().role.delivers() {
        tracing::warn!("[[record]] has no effect: a node that only disseminates keeps no streams");
        return Ok(None);
    }
    Ok(Some(Arc::new(Recorder::start(rules).map_err(Failure::failed)?)))
}

/// The configuration, with what the arguments change.
fn configured(args: &Args) -> Result<Config, Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    let changes = [
        (&args.node, &mut config.node.node),
        (&args.rtmp, &mut config.ingest.rtmp),
        (&args.http, &mut config.ingest.http),
        (&args.listen, &mut config.deliver.listen),
        (&args.webrtc, &mut config.webrtc.listen),
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
    control: Option<&Endpoint>,
    viewers: Option<&Viewers>,
    ingest: Option<&Ingest>,
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
        if let Some(address) = viewers.datagrams() {
            said += &format!("; WebRTC at {address} (UDP)");
        }
    }
    if let Some(control) = control {
        said += &format!("; control and metrics at http://{}", control.address());
    }
    said + "\n"
}
