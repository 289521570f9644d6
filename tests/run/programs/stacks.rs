//! Coroutines on stacks of their own, which are unmapped while others live on.
use std::ffi::c_void;

#[repr(C, align(16))]
struct Context([u8; 1024]);

unsafe extern "C" {
    fn getcontext(context: *mut Context) -> i32;
    fn makecontext(context: *mut Context, start: extern "C" fn(), arguments: i32);
    fn swapcontext(from: *mut Context, to: *const Context) -> i32;
    fn mmap(at: *mut c_void, bytes: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, bytes: usize) -> i32;
}

static mut MAIN: Context = Context([0; 1024]);
static mut OTHER: Context = Context([0; 1024]);
const BYTES: usize = 64 << 10;

#[inline(never)]
fn deep(depth: u32) -> usize {
    let block = std::hint::black_box(vec![1u8; 100]);
    let below = if depth == 0 { 0 } else { deep(depth - 1) };
    below + block.len()
}

extern "C" fn run() {
    std::hint::black_box(deep(20));
    std::mem::forget(std::hint::black_box(vec![3u8; 5000]));
    // SAFETY: both contexts are set up; this one is never resumed.
    unsafe { swapcontext(&raw mut OTHER, &raw const MAIN) };
}

fn main() {
    for _ in 0..200 {
        // SAFETY: a fresh mapping as the stack of a context (offsets of glibc's ucontext_t).
        unsafe {
            let stack = mmap(std::ptr::null_mut(), BYTES, 3, 0x22, -1, 0);
            getcontext(&raw mut OTHER);
            let context = (&raw mut OTHER).cast::<usize>();
            context.add(2).write(stack as usize);
            context.add(4).write(BYTES);
            context.add(1).write(0);
            makecontext(&raw mut OTHER, run, 0);
            swapcontext(&raw mut MAIN, &raw const OTHER);
            munmap(stack, BYTES);
        }
        std::hint::black_box(deep(10));
    }
    println!("done");
}
