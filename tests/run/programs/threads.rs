//! Many threads at once, each with a block of its own, and blocks made in destructors.
use std::sync::{Arc, Barrier};

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        std::mem::forget(std::hint::black_box(vec![1u8; 77]));
    }
}

thread_local!(static AT_END: AtEnd = const { AtEnd });

fn main() {
    let count: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let ready = Arc::new(Barrier::new(count + 1));
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let ready = ready.clone();
            let builder = std::thread::Builder::new().stack_size(64 << 10);
            let builder = builder.name(format!("conn-{number}"));
            builder
                .spawn(move || {
                    AT_END.with(|_| {});
                    let block = std::hint::black_box(vec![7u8; 1000]);
                    ready.wait();
                    ready.wait();
                    std::mem::forget(block);
                })
                .unwrap()
        })
        .collect();
    ready.wait();
    ready.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("{count}");
}
