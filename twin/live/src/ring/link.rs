// SPDX-License-Identifier: Apache-2.0
//! The two sockets of a ring member: one to the next member and one from the previous member.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};

use crate::ranks::Group;

pub(super) const OUTWARD_PORT: u16 = 7001;
pub(super) const RETURN_PORT: u16 = 7002;

const AGAIN_AFTER: Duration = Duration::from_millis(2);
/// After a failed attempt, the member rereads the rank file.
const CONNECT_WITHIN: Duration = Duration::from_millis(100);
/// Interval in milliseconds between a waiting member's checks for a new rank file.
const WAIT_MS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) index: usize,
    pub(super) members: usize,
    pub(super) port: u16,
    pub(super) next: SocketAddrV4,
}

pub(super) fn seats(group: &Group, at: usize) -> Option<[Seat; 2]> {
    let (nodes, own) = (group.members.len(), group.members.get(at)?);
    let here = Ipv4Addr::LOCALHOST;
    let outward = match own.next {
        Some(next) => SocketAddrV4::new(next, OUTWARD_PORT),
        None if at + 1 == nodes => SocketAddrV4::new(here, RETURN_PORT),
        None => return None,
    };
    let back = match own.previous {
        Some(previous) => SocketAddrV4::new(previous, RETURN_PORT),
        None if at == 0 => SocketAddrV4::new(here, OUTWARD_PORT),
        None => return None,
    };
    let members = 2 * nodes;
    Some([
        Seat { index: at, members, port: OUTWARD_PORT, next: outward },
        Seat { index: members - 1 - at, members, port: RETURN_PORT, next: back },
    ])
}

pub(super) struct Link {
    pub(super) to_next: TcpStream,
    pub(super) from_previous: TcpStream,
}

impl Link {
    /// Connects to both neighbours in the same generation. Gives up when `is_over` returns true.
    pub(super) fn meet(
        seat: Seat,
        listener: &TcpListener,
        generation: u64,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let (mut to_next, mut from_previous) = (None, None);
        while !is_over() {
            if to_next.is_none() {
                to_next = TcpStream::connect_timeout(&seat.next.into(), CONNECT_WITHIN)
                    .and_then(|stream| greet(stream, generation))
                    .ok();
            }
            if from_previous.is_none()
                && let Ok((stream, _)) = listener.accept()
            {
                from_previous = hear(stream, generation);
            }
            if to_next.is_some() && from_previous.is_some() {
                break;
            }
            std::thread::sleep(AGAIN_AFTER);
        }
        match (to_next, from_previous) {
            (Some(to_next), Some(from_previous)) => {
                to_next.set_nonblocking(true)?;
                from_previous.set_nonblocking(true)?;
                Ok(Self { to_next, from_previous })
            }
            _ => Err(over()),
        }
    }

    /// Sends one vector while receiving another. Checks `is_over` while no data is transferred.
    pub(super) fn exchange(
        &mut self,
        send: &[u8],
        receive: &mut [u8],
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let (mut sent, mut received) = (0, 0);
        while sent < send.len() || received < receive.len() {
            let mut moved = 0;
            if sent < send.len() {
                moved += some(self.to_next.write(&send[sent..]), &mut sent)?;
            }
            if received < receive.len() {
                moved += some(self.from_previous.read(&mut receive[received..]), &mut received)?;
            }
            if moved == 0 {
                self.wait(sent < send.len(), received < receive.len());
                if is_over() {
                    return Err(over());
                }
            }
        }
        Ok(())
    }

    fn wait(&self, sends: bool, receives: bool) {
        let if_wanted = |wanted, flag| if wanted { flag } else { PollFlags::empty() };
        let mut waiting = [
            PollFd::new(self.to_next.as_fd(), if_wanted(sends, PollFlags::POLLOUT)),
            PollFd::new(self.from_previous.as_fd(), if_wanted(receives, PollFlags::POLLIN)),
        ];
        let _asked_again_anyway = poll(&mut waiting, WAIT_MS);
    }
}

fn some(result: io::Result<usize>, total: &mut usize) -> io::Result<usize> {
    match result {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => {
            *total += bytes;
            Ok(bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error),
    }
}

fn greet(mut stream: TcpStream, generation: u64) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.write_all(&generation.to_be_bytes())?;
    Ok(stream)
}

/// Rejects a neighbour of another generation, which then rereads the rank file.
fn hear(mut stream: TcpStream, generation: u64) -> Option<TcpStream> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(CONNECT_WITHIN)).ok()?;
    let mut said = [0; 8];
    stream.read_exact(&mut said).ok()?;
    (u64::from_be_bytes(said) == generation).then_some(stream)
}

pub(super) fn over() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the rank file changed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::RankMember;

    #[test]
    fn line_of_nodes_is_a_ring_with_twice_the_members() {
        let at = |last| Some(Ipv4Addr::new(10, 65, 0, last));
        let member = |node: &str, next, previous| RankMember { node: node.into(), next, previous };
        let members =
            vec![member("n0", at(2), None), member("n1", at(3), at(1)), member("n2", None, at(2))];
        let group = Group { id: "g0".into(), job: None, members };
        let all: Vec<_> = (0..3).flat_map(|index| seats(&group, index).unwrap()).collect();
        let mut indices: Vec<_> = all.iter().map(|seat| seat.index).collect();
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2, 3, 4, 5]);
        let last = seats(&group, 2).unwrap();
        assert_eq!(last[0].next, SocketAddrV4::new(Ipv4Addr::LOCALHOST, RETURN_PORT));
        assert_eq!(last[1].next, SocketAddrV4::new(Ipv4Addr::new(10, 65, 0, 2), RETURN_PORT));
    }
}
