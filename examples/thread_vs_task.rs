//! What a waiting thread costs beside a waiting task.
//!
//! `cargo run --release --example thread_vs_task [COUNT] [thread|small|array|moved]`; without a mode,
//! each in a process of its own. Resident bytes, without what the kernel keeps for a thread.

use std::sync::{Arc, Barrier};

#[path = "shared/process.rs"]
mod process;

async fn small(ready: Arc<tokio::sync::Barrier>) {
    ready.wait().await;
    ready.wait().await;
}

/// 4 KB that live across an await, so they are in the future.
async fn array(ready: Arc<tokio::sync::Barrier>) {
    let mut buffer = [0u8; 4096];
    buffer[7] = 1;
    ready.wait().await;
    ready.wait().await;
    assert_eq!(std::hint::black_box(&buffer)[7], 1);
}

async fn inner(buffer: [u8; 4096], ready: Arc<tokio::sync::Barrier>) {
    ready.wait().await;
    ready.wait().await;
    assert_eq!(std::hint::black_box(&buffer)[7], 1);
}

/// The array again, handed on by value: each layer has room for it.
async fn moved(ready: Arc<tokio::sync::Barrier>) {
    async fn middle(buffer: [u8; 4096], ready: Arc<tokio::sync::Barrier>) {
        inner(buffer, ready).await;
    }
    let mut buffer = [0u8; 4096];
    buffer[7] = 1;
    middle(buffer, ready).await;
}

fn tell(mode: &str, count: usize, future: usize, before: u64) {
    let each = process::resident().saturating_sub(before) / count as u64;
    println!("{mode:8} {count:>8} {future:>13} {each:>15}");
}

#[tokio::main(worker_threads = 2)]
async fn tasks(mode: &str, count: usize) {
    let ready = Arc::new(tokio::sync::Barrier::new(count + 1));
    let before = process::resident();
    let size = match mode {
        "small" => size_of_val(&small(ready.clone())),
        "array" => size_of_val(&array(ready.clone())),
        _ => size_of_val(&moved(ready.clone())),
    };
    for _ in 0..count {
        match mode {
            "small" => tokio::spawn(small(ready.clone())),
            "array" => tokio::spawn(array(ready.clone())),
            _ => tokio::spawn(moved(ready.clone())),
        };
    }
    ready.wait().await;
    tell(mode, count, size, before);
    // They wait to the end, as in a server.
    std::process::exit(0);
}

fn threads(count: usize) {
    let ready = Arc::new(Barrier::new(count + 1));
    let before = process::resident();
    let waits = |ready: Arc<Barrier>| {
        move || {
            ready.wait();
            ready.wait();
        }
    };
    for _ in 0..count {
        std::thread::spawn(waits(ready.clone()));
    }
    ready.wait();
    tell("thread", count, 0, before);
    std::process::exit(0);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count = args.first().map_or(5000, |n| n.parse().expect("a number"));
    match args.get(1).map(String::as_str) {
        Some("thread") => threads(count),
        Some(mode) => tasks(mode, count),
        None => {
            println!("kind        count  future bytes  resident each");
            let modes = ["thread", "small", "array", "moved"];
            for mode in modes {
                process::again(&[&count.to_string(), mode]);
            }
        }
    }
}
