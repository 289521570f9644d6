//! malloc and free in a signal handler that interrupts malloc and free. Not allowed, and done.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

unsafe extern "C" {
    fn signal(signal: i32, handler: extern "C" fn(i32)) -> usize;
    fn mallopt(parameter: i32, value: i32) -> i32;
    fn setitimer(which: i32, new: *const [i64; 4], old: *mut [i64; 4]) -> i32;
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// A block from `mmap`: glibc's own lock must not be met again by a handler.
extern "C" fn handle(_signal: i32) {
    HANDLED.fetch_add(1, Relaxed);
    drop(std::hint::black_box(vec![1u8; 300 << 10]));
}

fn main() {
    // SAFETY: a handler of the right type; a timer of this process. The threshold for `mmap` (-3)
    // would otherwise grow.
    unsafe {
        mallopt(-3, 64 << 10);
        signal(14, handle);
        setitimer(0, &[0, 500, 0, 500], std::ptr::null_mut());
    }
    let mut sum = 0;
    let until = std::time::Instant::now() + std::time::Duration::from_millis(700);
    while std::time::Instant::now() < until {
        // Through `mmap`, too: only our own code is interrupted while it holds something.
        let block = std::hint::black_box(vec![1u8; 200 << 10]);
        sum += u64::from(block[100]);
    }
    assert!(HANDLED.load(Relaxed) > 100 && sum > 100);
    println!("done");
}
