//! Threads that come and go one after the other, then threads that wait to the end.
use std::sync::{Arc, Barrier};

fn work() {
    std::hint::black_box(vec![7u8; 1000]);
}

fn main() {
    let mut counts = std::env::args().skip(1).map(|word| word.parse().unwrap());
    let (passing, waiting): (usize, usize) = (counts.next().unwrap(), counts.next().unwrap());
    for _ in 0..passing {
        std::thread::spawn(work).join().unwrap();
    }
    let ready = Arc::new(Barrier::new(waiting + 1));
    for _ in 0..waiting {
        let ready = ready.clone();
        let builder = std::thread::Builder::new().stack_size(64 << 10);
        let waits = move || {
            work();
            ready.wait();
            ready.wait();
        };
        builder.spawn(waits).unwrap();
    }
    ready.wait();
    println!("{passing} {waiting}");
    std::process::exit(0);
}
