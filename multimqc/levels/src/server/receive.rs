//! The thread of a socket.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::socket::{Received, Replies, Socket};
use super::stop::Stop;
use crate::service::Service;
use crate::topic::TopicId;

/// How long a thread waits after an error of its socket.
const RETRY: Duration = Duration::from_millis(100);

/// The kind of datagrams that arrive at a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// Pushes of a topic, in the plain form.
    Push(TopicId),
    /// Pulls of a topic, in the plain form.
    Pull(TopicId),
    /// Everything, in the header form.
    Header,
}

impl Role {
    pub fn name(self) -> String {
        match self {
            Role::Push(topic) => format!("push-{topic}"),
            Role::Pull(topic) => format!("pull-{topic}"),
            Role::Header => "header".into(),
        }
    }
}

/// A socket and its role.
pub(crate) struct Port {
    pub socket: Socket,
    pub role: Role,
}

/// Serves until asked to stop.
pub(crate) fn run(port: Port, service: &Service, stop: &Stop) {
    let (mut received, mut replies) = (Received::new(), Replies::default());
    while !stop.is_asked() {
        match port.socket.receive(&mut received) {
            Ok(()) => {
                handle(port.role, service, &received, &mut replies);
                service.unsent(port.socket.send(&mut replies));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // An earlier reply was refused by its receiver, or the system is out of memory.
            Err(_) => std::thread::sleep(RETRY),
        }
        if !received.is_full() {
            wait(&port.socket, stop);
        }
    }
}

fn handle(role: Role, service: &Service, received: &Received, replies: &mut Replies) {
    match role {
        Role::Push(topic) => service.push(topic, received.iter().map(|(_, datagram)| datagram)),
        Role::Pull(topic) => {
            let mut reply = Vec::new();
            for (from, datagram) in received.iter() {
                if service.pull(topic, datagram, &mut reply) {
                    replies.add(from, &reply);
                }
            }
        }
        Role::Header => {
            let datagrams = received.iter().map(|(_, datagram)| datagram);
            let mut senders = received.iter().map(|(from, _)| from).enumerate();
            service.datagrams(datagrams, |index, reply| {
                // Replies are in the order of their datagrams.
                let (_, from) = senders.find(|(at, _)| *at == index).expect("a sender for each datagram");
                replies.add(from, reply);
            });
        }
    }
}

/// Sleeps until the socket is readable, or the server stops.
fn wait(socket: &Socket, stop: &Stop) {
    let mut polled = [socket.fd(), stop.fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // An interrupted poll only costs another turn.
    let _ = poll(&mut polled, None);
}
