//! Memory that grows with what it is told: `grow local N`, `grow shared N`, `grow serve PORT` with
//! `grow ask PORT N`.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

const MB: usize = 1 << 20;

thread_local!(static CACHE: Vec<u8> = cache());
static SHARED: OnceLock<Vec<u8>> = OnceLock::new();

#[inline(never)]
fn cache() -> Vec<u8> {
    std::hint::black_box(vec![7; MB]) // a cache for each thread
}

fn look_up(local: bool) -> u8 {
    match local {
        true => CACHE.with(|cache| cache[5]),
        false => SHARED.get_or_init(cache)[5],
    }
}

fn threads(count: usize, local: bool) {
    let ready = Arc::new(Barrier::new(count + 1));
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let ready = ready.clone();
            let builder = std::thread::Builder::new().name(format!("worker-{number}"));
            builder
                .spawn(move || {
                    assert_eq!(look_up(local), 7);
                    ready.wait();
                    ready.wait();
                })
                .unwrap()
        })
        .collect();
    ready.wait();
    std::thread::sleep(Duration::from_millis(300));
    ready.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Keeps 200,000 bytes for each connection that it ever had.
fn serve(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut kept = Vec::new();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut word = [0; 1];
        if stream.read(&mut word).unwrap_or(0) == 1 {
            kept.push(std::hint::black_box(vec![1u8; 200_000])); // kept for ever
            stream.write_all(&word).unwrap();
        }
    }
}

fn ask(port: u16, count: usize) {
    for _ in 0..count {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).map_or(0, |text| text.parse().unwrap());
    match args[0].as_str() {
        "local" => threads(number(1), true),
        "shared" => threads(std::env::var("N").unwrap().parse().unwrap(), false),
        "serve" => serve(number(1) as u16),
        "ask" => ask(number(1) as u16, number(2)),
        "fail" => std::process::exit(if number(1) > 2 { 3 } else { 0 }),
        other => panic!("{other}"),
    }
}
