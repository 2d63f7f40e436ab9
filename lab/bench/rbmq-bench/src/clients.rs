//! A publisher or subscriber of one topic with the same interface for every system, for benches of single messages.
//!
//! A sender pushes the due messages and then flushes: clients with a buffer write it then, and RBMQ's library decides by
//! itself. A receiver gets all available messages, and waits for the first.

use std::{io, net::TcpStream, time::Duration};

use rustix::net::sockopt;

use crate::{error::BenchError, systems::System, ways::Way};

/// A receiver that has nothing looks around this often.
pub const LOOK: Duration = Duration::from_millis(20);

/// The server to connect to.
#[derive(Debug, Clone, clap::Args)]
pub struct Whom {
    /// The system between publishers and subscribers
    #[arg(long, value_enum)]
    pub system: System,
    /// Address of the broker or relay
    #[arg(long)]
    pub addr: String,
    /// The transport of RBMQ
    #[arg(long, value_enum, default_value = "tcp")]
    pub transport: Way,
    /// Congestion control to set on every socket
    #[arg(long)]
    pub congestion: Option<String>,
}

/// The options of a process that publishes numbered messages, or receives them.
#[derive(Debug, clap::Args)]
pub struct Numbers {
    /// The server to connect to
    #[command(flatten)]
    pub whom: Whom,
    /// Bytes of a message, at least 8
    #[arg(long)]
    pub size: usize,
    /// Messages per second
    #[arg(long)]
    pub rate: f64,
}

/// The publisher of a topic.
pub trait Sends: Send {
    /// Hands over a message.
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

/// The subscriber of a topic.
pub trait Receives {
    /// Hands every available message to `each`; waits at most `LOOK` if there is none.
    ///
    /// # Errors
    /// The connection failed, or bytes came that are no message.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), BenchError>;
}

/// A connection with `TCP_NODELAY`.
///
/// # Errors
/// No server listens at the address.
pub fn connect(addr: &str, congestion: Option<&str>) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(addr)?;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(&socket, name)?;
    }
    socket.set_nodelay(true)?;
    Ok(socket)
}
