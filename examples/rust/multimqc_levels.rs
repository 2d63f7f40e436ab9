//! A MultiMQC server with two levels in a program of one's own: pushes a reading and pulls it.
//!
//! ```sh
//! cargo run -p multimqc --example multimqc_levels
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{Fetched, Puller, Pusher, Server, ServerConfig, Stack, TopicId};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("multimqc-levels-{}", std::process::id()));
    let user = UserLevel::new(UserConfig::default())?;
    let disk = DiskLevel::new(DiskConfig::new(&folder))?;
    let stack = Arc::new(Stack::new(vec![Arc::new(user), Arc::new(disk)])?);

    // Any free port, so that the example runs beside a server. A real one keeps the default ports.
    let mut config = ServerConfig { header_port: Some(0), ..ServerConfig::default() };
    (config.topics[0].push_port, config.topics[0].pull_port) = (None, None);
    let server = Server::start(stack, &config, Vec::new())?;
    let address = server.addresses().header.ok_or("the port is configured")?;

    Pusher::connect(address, TopicId(0))?.push(b"reading 42")?;
    let mut puller = Puller::connect(address, TopicId(0))?;
    // A push is not confirmed: the pull may come first.
    loop {
        match puller.fetch(0, 100, Some(Duration::from_secs(5)))? {
            Some(Fetched::Data(bytes)) => {
                println!("{}", String::from_utf8_lossy(bytes));
                break;
            }
            Some(Fetched::End(_)) => std::thread::sleep(Duration::from_millis(1)),
            other => return Err(format!("no bytes: {other:?}").into()),
        }
    }
    drop(server);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
