//! Threads that name themselves for the first time, all at the same moment.
use std::sync::{Arc, Barrier};

unsafe extern "C" {
    fn pthread_self() -> usize;
    fn pthread_setname_np(thread: usize, name: *const u8) -> i32;
}

fn main() {
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let barrier = barrier.clone();
            // Without a name: std calls nothing.
            std::thread::spawn(move || {
                barrier.wait();
                // SAFETY: the name ends with a zero.
                unsafe { pthread_setname_np(pthread_self(), c"at-once".as_ptr().cast()) }
            })
        })
        .collect();
    let results: Vec<i32> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(results, [0; 8]);
}
