//! The server of a client, and failures of its socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use commands::Failure;
use multimqc::{Puller, TopicId};

/// How long one of several addresses may take to answer.
const PROBE: Duration = Duration::from_secs(1);

/// The address of a server. Of several that its name has, it is the first where one answers.
pub fn find_server(text: &str) -> Result<SocketAddr, Failure> {
    let all = peers::resolve(text).map_err(|error| Failure::Failed(format!("{text}: {error}")))?;
    if let [one] = all[..] {
        return Ok(one);
    }
    let mut whys = Vec::new();
    for address in all {
        // Any answer will do, also that there is no such topic.
        let answer = Puller::connect(address, TopicId(0)).and_then(|mut server| {
            let answer = server.fetch(0, 1, Some(PROBE))?;
            answer.map(drop).ok_or_else(|| io::Error::other("no reply"))
        });
        match answer {
            Ok(()) => return Ok(address),
            Err(error) => whys.push(format!("{address}: {error}")),
        }
    }
    Err(Failure::Failed(format!("no server answers at {text} ({})", whys.join("; "))))
}

/// A failure of a client's socket.
pub fn server_failed(server: SocketAddr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Failure::Failed(format!("nobody listens at {server}; start one with `multimqc serve`"))
        }
        _ => Failure::Failed(format!("{server}: {error}")),
    }
}
