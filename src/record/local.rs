//! The two words that every thread of the program carries for us.
//!
//! Thread-local storage of a preloaded library comes out of every thread's stack, and the general
//! model of Rust's `thread_local!` calls into the loader: so it is a pointer to the thread's state
//! and, beside it, the bytes to the next sample, in the initial-exec model. The bytes are not part
//! of the state because nearly every allocation of a sample touches nothing else: it takes its size
//! off and goes on (see `sample`). Zero sends an allocation the long way: that is what a thread
//! begins with.

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.taskheap,\"awT\",@nobits",
    ".p2align 4",
    ".globl taskheap_thread_state",
    ".hidden taskheap_thread_state",
    ".type taskheap_thread_state,@object",
    ".size taskheap_thread_state,8",
    "taskheap_thread_state:",
    ".zero 8",
    ".globl taskheap_bytes_to_sample",
    ".hidden taskheap_bytes_to_sample",
    ".type taskheap_bytes_to_sample,@object",
    ".size taskheap_bytes_to_sample,8",
    "taskheap_bytes_to_sample:",
    ".zero 8",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
mod words {
    use std::arch::asm;

    macro_rules! word {
        ($get:ident, $set:ident, $offset:ident, $symbol:literal) => {
            /// How far from the thread pointer: apart, so that it is not looked up twice.
            #[inline(always)]
            fn $offset() -> usize {
                let offset: usize;
                // SAFETY: loads what the loader has put there before any code of ours runs.
                unsafe {
                    asm!(
                        concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                        out(reg) offset,
                        options(pure, nomem, nostack, preserves_flags),
                    )
                };
                offset
            }

            #[inline(always)]
            pub fn $get() -> usize {
                let value: usize;
                // SAFETY: loads a word defined above from the calling thread's block.
                unsafe {
                    asm!(
                        "mov {}, qword ptr fs:[{}]",
                        out(reg) value,
                        in(reg) $offset(),
                        options(nostack, readonly, preserves_flags),
                    )
                };
                value
            }

            #[inline(always)]
            pub fn $set(value: usize) {
                // SAFETY: stores to a word defined above in the calling thread's block.
                unsafe {
                    asm!(
                        "mov qword ptr fs:[{}], {}",
                        in(reg) $offset(),
                        in(reg) value,
                        options(nostack, preserves_flags),
                    )
                };
            }
        };
    }

    word!(get, set, state_offset, "taskheap_thread_state");
    word!(
        bytes_to_sample,
        set_bytes_to_sample,
        bytes_offset,
        "taskheap_bytes_to_sample"
    );
}

#[cfg(not(target_arch = "x86_64"))]
mod words {
    use std::cell::Cell;

    std::thread_local! {
        static STATE: Cell<usize> = const { Cell::new(0) };
        static BYTES_TO_SAMPLE: Cell<usize> = const { Cell::new(0) };
    }

    #[inline(always)]
    pub fn get() -> usize {
        STATE.with(Cell::get)
    }

    pub fn set(value: usize) {
        STATE.with(|state| state.set(value));
    }

    #[inline(always)]
    pub fn bytes_to_sample() -> usize {
        BYTES_TO_SAMPLE.with(Cell::get)
    }

    #[inline(always)]
    pub fn set_bytes_to_sample(bytes: usize) {
        BYTES_TO_SAMPLE.with(|word| word.set(bytes));
    }
}

pub use words::{bytes_to_sample, get, set, set_bytes_to_sample};
