//! Recursion of 20,000 frames, an allocation in each.
#[inline(never)]
fn deep(depth: u64) -> u64 {
    let block = std::hint::black_box(Box::new([depth; 4]));
    let below = if depth == 0 { 0 } else { deep(depth - 1) };
    std::hint::black_box(below) + block[0]
}

fn main() {
    let work = || std::hint::black_box(deep(20_000));
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    println!("{}", thread.spawn(work).unwrap().join().unwrap());
}
