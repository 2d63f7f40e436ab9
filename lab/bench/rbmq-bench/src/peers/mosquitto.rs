//! Mosquitto's server.

use std::{io, path::Path};

use benchkit::server::Start;

/// The server as the bench starts it: for this machine only, nothing on disk, small packets at once. Without `limits` any number of messages
/// of QoS 1 wait for a client, of which as many may be unacknowledged as with RBMQ's gateway, instead of 20.
pub fn start(program: &Path, folder: &Path, port: u16, limits: bool) -> io::Result<Start> {
    let config = folder.join("mosquitto.conf");
    let limits = if limits { "" } else { "max_inflight_messages 100\nmax_queued_messages 0\n" };
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n\
         {limits}\
         log_dest stderr\nlog_type error\nlog_type warning\nlog_type notice\n"
    );
    std::fs::write(&config, text)?;
    let args = vec!["-c".to_owned(), config.to_string_lossy().into_owned()];
    Ok(Start { program: program.to_owned(), args, env: Vec::new() })
}
