//! Blocks of many sizes on four threads, of which every third is kept; says what it did.
use std::sync::Mutex;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn work(seed: u64) -> [u64; 3] {
    let (mut allocated, mut kept, mut blocks) = (0, 0, 0);
    let mut random = seed | 1;
    for n in 0..60_000u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let size = if n % 1000 == 0 {
            300_000
        } else {
            16 + random % 2000
        };
        let block = std::hint::black_box(vec![1u8; size as usize]);
        allocated += size;
        blocks += 1;
        if n % 3 == 0 {
            kept += size;
            KEPT.lock().unwrap().push(block);
        }
    }
    [allocated, kept, blocks]
}

fn main() {
    KEPT.lock().unwrap().reserve(100_000);
    let threads: Vec<_> = (1..=4)
        .map(|seed| std::thread::spawn(move || work(seed * 77)))
        .collect();
    let mut sum = [0; 3];
    for thread in threads {
        for (all, own) in sum.iter_mut().zip(thread.join().unwrap()) {
            *all += own;
        }
    }
    println!("{} {} {}", sum[0], sum[1], sum[2]);
    std::process::exit(0);
}
