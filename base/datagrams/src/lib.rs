//! Sockets of UDP of which one call receives or sends many datagrams: the call, and what the system must allow.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

/// Refuses a system without the calls that receive and send, as the filter of a container may make it: the socket would be silent. Nothing is
/// received or sent.
///
/// ```
/// use std::net::UdpSocket;
///
/// use quinn_udp::{UdpSockRef, UdpSocketState};
///
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
/// datagrams::check_calls(&socket, &state)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Names the call, and what the system said.
pub fn check_calls(socket: &impl AsFd, state: &UdpSocketState) -> io::Result<()> {
    let refused = |call: &str, error: io::Error| {
        let why = "this system, or the filter of its container, must allow it";
        io::Error::new(error.kind(), format!("{call}: {error}; {why}"))
    };
    // Without buffers and without datagrams the calls do nothing.
    state.recv(UdpSockRef::from(socket), &mut [], &mut []).map_err(|error| refused("recvmmsg", error))?;
    sendmmsg(socket, &mut [], SendFlags::empty()).map_err(|error| refused("sendmmsg", error.into()))?;
    Ok(())
}

/// Sends datagrams, each to its address, in one call. Returns how many were sent, which may be fewer.
///
/// ```
/// use std::net::UdpSocket;
///
/// let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port"));
/// let to = other.local_addr()?;
/// assert_eq!(datagrams::send_many(&one, [(to, &b"1"[..]), (to, b"23")].into_iter())?, 2);
/// assert_eq!([other.recv(&mut [0; 9])?, other.recv(&mut [0; 9])?], [1, 2]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The first one cannot be sent.
pub fn send_many<'a>(
    socket: &impl AsFd,
    datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>,
) -> io::Result<usize> {
    let (addresses, slices): (Vec<SocketAddrAny>, Vec<_>) =
        datagrams.map(|(to, bytes)| (to.into(), [IoSlice::new(bytes)])).unzip();
    let mut controls: Vec<_> = addresses.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let datagrams = addresses.iter().zip(&slices).zip(&mut controls);
    let mut headers: Vec<MMsgHdr<'_>> =
        datagrams.map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control)).collect();
    Ok(sendmmsg(socket, &mut headers, SendFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_descriptor_that_takes_neither_call_is_refused_with_the_reason() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).expect("a socket of UDP");
        let other = File::open("/dev/null").expect("a device");
        let error = check_calls(&other, &state).expect_err("it is no socket").to_string();
        assert!(error.starts_with("recvmmsg: ") && error.contains("must allow it"), "{error}");
    }
}
