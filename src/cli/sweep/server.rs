//! A program that does not end by itself: wait until it is ready, give it the load, end it.
//!
//! The recorder waits for the program in its own thread, so this runs beside it. The process is
//! held by a descriptor: its number may be another's as soon as it has ended.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::super::run::Started;

/// How long a server that was told to end may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks whether it is ready.
const PAUSE: Duration = Duration::from_millis(50);

/// How a server is driven, with the values of one run.
#[derive(Debug)]
pub struct Load {
    pub ready: String,
    pub ready_within: Duration,
    pub command: String,
    pub variables: Vec<(String, OsString)>,
    pub log: File,
}

/// What keeps the run from counting, as a sentence.
type Failure = String;

impl Load {
    /// Does something answer before the server is started? Then it would be taken for the server.
    pub fn answers_already(&self) -> bool {
        address(&self.ready).is_some() && self.is_ready().unwrap_or(false)
    }

    /// Waits, loads, ends the server. Comes back when the server has been told to end, and has.
    pub fn drive(&self, started: &Receiver<Started>) -> Result<(), Failure> {
        // The other end is gone: it never started, and the recorder says why.
        let Ok(Started { process }) = started.recv() else {
            return Ok(());
        };
        let process = process.ok_or("a server needs Linux 5.3 or later (pidfd_open)")?;
        let loaded = self.wait_until_ready(&process).and_then(|()| self.run());
        let ended = end(&process);
        loaded.and(ended)
    }

    fn wait_until_ready(&self, process: &OwnedFd) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            if has_ended(process, Duration::ZERO) {
                return Err("the server ended before it was ready".to_owned());
            }
            match self.is_ready() {
                Ok(true) => return Ok(()),
                Ok(false) if started.elapsed() < self.ready_within => {}
                Ok(false) => {
                    let seconds = self.ready_within.as_secs();
                    return Err(format!(
                        "the server was not ready within {seconds} s ({})",
                        self.ready
                    ));
                }
                Err(error) => {
                    return Err(format!("can't tell whether the server is ready: {error}"));
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn is_ready(&self) -> io::Result<bool> {
        if let Some((host, port)) = address(&self.ready) {
            let Ok(addresses) = (host, port).to_socket_addrs() else {
                return Ok(false);
            };
            let open = |a| TcpStream::connect_timeout(&a, Duration::from_secs(1)).is_ok();
            return Ok(addresses.into_iter().any(open));
        }
        Ok(self.shell(&self.ready)?.success())
    }

    fn run(&self) -> Result<(), Failure> {
        match self.shell(&self.command) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the load failed: {status}")),
            Err(error) => Err(format!("the load can't be run: {error}")),
        }
    }

    fn shell(&self, command: &str) -> io::Result<ExitStatus> {
        Command::new("/bin/sh")
            .args(["-c", command])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(self.log.try_clone()?)
            .stderr(self.log.try_clone()?)
            .status()
    }
}

/// `host:port`; anything else is a command.
fn address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let plain = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
    let host = host.trim_start_matches('[').trim_end_matches(']');
    plain.then_some((host, port.parse().ok()?))
}

/// SIGTERM, and SIGKILL if that is not enough.
fn end(process: &OwnedFd) -> Result<(), Failure> {
    signal(process, libc::SIGTERM);
    if has_ended(process, PATIENCE) {
        return Ok(());
    }
    signal(process, libc::SIGKILL);
    let seconds = PATIENCE.as_secs();
    Err(format!(
        "the server did not end within {seconds} s of SIGTERM and was killed"
    ))
}

fn signal(process: &OwnedFd, signal: i32) {
    // SAFETY: an open descriptor of a process, and no other pointer. That it has ended already is
    // no error to us.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
}

fn has_ended(process: &OwnedFd, within: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: one entry, valid during the call.
        match unsafe { libc::poll(&mut poll, 1, left.as_millis() as i32) } {
            0 => return false,
            // A signal came for somebody else.
            ..0 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            ready => return ready > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_are_told_from_commands() {
        assert_eq!(address("localhost:8080"), Some(("localhost", 8080)));
        assert_eq!(address("[::1]:80"), Some(("::1", 80)));
        assert_eq!(address("curl -sf http://localhost:8080"), None);
        assert_eq!(address("http://localhost:8080"), None);
        assert_eq!(address("test -e ready"), None);
    }
}
