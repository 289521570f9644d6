//! Where other commands find a program that is being recorded: `taskheap snapshot PID`.
//!
//! A file with a socket in it would lie about after a kill and could be a link in a shared folder.
//! So each recorded process has an abstract socket that is named by its process id and goes with
//! this process. Names are open to every user of the machine, so both sides check who the other
//! one is: only the same user, or root, is answered and believed.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// How long an answer may take to be taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// First byte of an answer: what follows is a profile, or a reason.
pub const PROFILE: u8 = b'P';
pub const REASON: u8 = b'R';

/// Answers for one process.
pub struct Asked {
    listener: UnixListener,
}

fn name_of(pid: i32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("taskheap.{pid}"))
}

/// The user at the other end, if it is us or root.
fn is_ours(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is a place of `size` bytes for the answer.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    };
    // SAFETY: takes nothing.
    let own = unsafe { libc::geteuid() };
    result == 0 && (peer.uid == own || peer.uid == 0)
}

impl Asked {
    /// Listens for the process. An error if somebody else has the name.
    pub fn listen(pid: i32) -> io::Result<Asked> {
        let listener = UnixListener::bind_addr(&name_of(pid)?)?;
        listener.set_nonblocking(true)?;
        Ok(Asked { listener })
    }

    /// Somebody who asks and has not been met yet. To be called every few milliseconds.
    pub fn next(&self) -> Option<Answer> {
        let (stream, _) = self.listener.accept().ok()?;
        let taken = stream.set_nonblocking(false).is_ok()
            && stream.set_write_timeout(Some(PATIENCE)).is_ok()
            && is_ours(&stream);
        taken.then_some(Answer { stream })
    }
}

/// Who waits for an answer. Dropped without one, the other side says that the command went away.
pub struct Answer {
    stream: UnixStream,
}

impl Answer {
    pub fn profile(mut self, bytes: &[u8]) {
        // Who does not take it has gone: nothing to be done.
        let _ = self.stream.write_all(&[PROFILE]);
        let _ = self.stream.write_all(bytes);
    }

    pub fn refuse(mut self, reason: &str) {
        let _ = self.stream.write_all(&[REASON]);
        let _ = self.stream.write_all(reason.as_bytes());
    }
}

/// Asks the command that records the process. `None` if nobody records it, or not as our user.
pub fn ask(pid: i32) -> io::Result<Option<UnixStream>> {
    match UnixStream::connect_addr(&name_of(pid)?) {
        Ok(stream) => Ok(is_ours(&stream).then_some(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn who_asks_is_answered() {
        // No process has such an id.
        let pid = -(std::process::id() as i32);
        assert!(ask(pid).unwrap().is_none());
        let asked = Asked::listen(pid).unwrap();
        assert!(Asked::listen(pid).is_err());
        let mut stream = ask(pid).unwrap().unwrap();
        asked.next().unwrap().refuse("no");
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "Rno");
        assert!(asked.next().is_none());
    }
}
