//! One publisher or subscriber of one topic, the same for every system: for benches that look at single messages.
//!
//! Whoever sends pushes what is due and then flushes: the systems whose clients have a buffer write it then; RBMQ's
//! library decides for itself. Whoever receives is handed every message that is there, and waits for the first.

use std::{io, net::TcpStream, time::Duration};

use rustix::net::sockopt;

use crate::{error::BenchError, systems::System, ways::Way};

/// A receiver that has nothing looks around this often.
pub const LOOK: Duration = Duration::from_millis(20);

/// Whom to talk to.
#[derive(Debug, Clone, clap::Args)]
pub struct Whom {
    /// What is between publishers and subscribers
    #[arg(long, value_enum)]
    pub system: System,
    /// Address of the broker or relay
    #[arg(long)]
    pub addr: String,
    /// What carries RBMQ's bytes
    #[arg(long, value_enum, default_value = "tcp")]
    pub transport: Way,
    /// Congestion control to set on every socket
    #[arg(long)]
    pub congestion: Option<String>,
}

/// One topic's publisher.
pub trait Sends: Send {
    /// Hands over one message.
    ///
    /// # Errors
    /// The connection failed.
    fn push(&mut self, message: &[u8]) -> Result<(), BenchError>;

    /// Sees to it that everything handed over is on its way.
    ///
    /// # Errors
    /// The connection failed.
    fn flush(&mut self) -> Result<(), BenchError>;
}

/// One topic's subscriber.
pub trait Receives {
    /// Hands every message that is there to `each`; waits at most `LOOK` if there is none.
    ///
    /// # Errors
    /// The connection failed, or something came that is no message.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), BenchError>;
}

/// A connection that does not wait for more before it sends.
///
/// # Errors
/// Nobody listens there.
pub fn connect(addr: &str, congestion: Option<&str>) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(addr)?;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(&socket, name)?;
    }
    socket.set_nodelay(true)?;
    Ok(socket)
}
