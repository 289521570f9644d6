//! A key-value server on tokio answers and ends as it does without us, and its tasks hold what its
//! protocol says they hold.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::programs::{
    PATIENCE, Running, adds_up, child_of, number, program, recorded, report, row, taskheap, told,
};

const CONNECTIONS: usize = 40;
const VALUES: usize = 5;

/// What a task allocates for its answers, and for what it reads.
const BUFFERS: u64 = 4096 + 1024;

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    fn ask(&mut self, line: &str) -> String {
        let stream = self.0.get_mut();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer
    }
}

fn value(client: usize, number: usize) -> String {
    "v".repeat(50 + 100 * number + client)
}

/// Every client sets its values, then reads those of the next one.
fn talk(port: u16) -> (Vec<Client>, Vec<String>) {
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| Client::connect(port)).collect();
    let mut answers = Vec::new();
    for (at, client) in clients.iter_mut().enumerate() {
        for n in 0..VALUES {
            answers.push(client.ask(&format!("SET key-{at}-{n} {}", value(at, n))));
        }
        // Replaced by the same.
        answers.push(client.ask(&format!("SET key-{at}-0 {}", value(at, 0))));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let next = (at + 1) % CONNECTIONS;
        for n in 0..=VALUES {
            answers.push(client.ask(&format!("GET key-{next}-{n}")));
        }
        answers.push(client.ask("what"));
    }
    (clients, answers)
}

enum End {
    Quit,
    Terminate,
}

/// All that the server said, and how it ended. `quiet` is called while all connections are open
/// and every request is answered.
fn serve(command: &mut Command, end: &End, quiet: impl Fn(u32)) -> (Vec<String>, ExitStatus) {
    let mut server = Running::start(command);
    let port = server.line().parse().expect("a port");
    let (mut clients, mut answers) = talk(port);
    quiet(server.child.id());
    match end {
        End::Quit => answers.push(clients[0].ask("QUIT")),
        End::Terminate => server.signal(libc::SIGTERM),
    }
    let mut rest = String::new();
    server.output.read_to_string(&mut rest).unwrap();
    answers.push(rest);
    (answers, server.ended())
}

fn connections(report: &Value) -> &Value {
    row(report, "tasks", "/name", "server::handle_connection")
}

/// While all connections are open and nothing moves.
fn check_quiet(profile: &Path) {
    let report = report(profile);
    let tasks = connections(&report);
    let connected = CONNECTIONS as u64;
    assert_eq!(number(tasks, "spawned"), connected);
    assert_eq!(number(tasks, "live"), connected);
    assert_eq!(number(tasks, "finished_allocated"), 0);
    let values = (0..CONNECTIONS).flat_map(|at| (0..VALUES).map(move |n| value(at, n)));
    let values: u64 = values.map(|value| value.len() as u64).sum();
    let stored = row(&report, "sites", "/site/function", "server::stored");
    assert_eq!(number(stored, "live_bytes"), values);
    assert_eq!(number(stored, "live_blocks"), connected * VALUES as u64);
    let scratch = row(&report, "sites", "/site/function", "server::scratch");
    assert_eq!(number(scratch, "live_bytes"), connected * 4096);
    // Besides: keys, the table, the line that is read, the halves of the socket, which the task
    // made, too. Not the socket's entry in the runtime, which `accept` made.
    let least = connected * (number(tasks, "cell_bytes") + BUFFERS) + values;
    let held = number(tasks, "live_bytes");
    assert!(
        (least..least + connected * 1500).contains(&held),
        "{held} {least}"
    );
}

fn as_without_us(end: &End, code: i32) {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
    let program = program("server");
    let (answers, bare) = serve(&mut Command::new(&program), end, |_| ());
    let snapshot = |command: u32| {
        let child = child_of(command).unwrap().to_string();
        told(taskheap().args(["snapshot", &child, "-o"]).arg(&part));
    };
    let mut command = recorded(&whole, &program, &[]);
    let (ours, ended) = serve(&mut command, end, snapshot);
    assert_eq!(answers, ours);
    assert_eq!(ended.code(), Some(code), "{ended}");
    let report = adds_up(&whole);
    let exit = &report["program"]["exit"];
    match end {
        End::Quit => {
            assert_eq!(bare.code(), Some(code));
            assert_eq!(exit["code"], code);
        }
        End::Terminate => {
            let signal = std::os::unix::process::ExitStatusExt::signal(&bare);
            assert_eq!(signal.map(|signal| 128 + signal), Some(code));
            assert_eq!(exit["signal"], code - 128);
        }
    }
    assert_eq!(number(connections(&report), "spawned"), CONNECTIONS as u64);
    adds_up(&part);
    check_quiet(&part);
}

#[test]
fn a_server_that_is_told_to_quit_answers_and_ends_as_without_us() {
    as_without_us(&End::Quit, 3);
}

#[test]
fn a_server_that_is_terminated_answers_and_ends_as_without_us() {
    as_without_us(&End::Terminate, 143);
}
