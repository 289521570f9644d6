//! The one word that the recorder keeps in each thread's own storage.
//!
//! Thread-local storage of a preloaded library comes out of every thread's stack, and the general
//! model of Rust's `thread_local!` calls into the loader: so it is one pointer, in the
//! initial-exec model.

pub use machine::{get, set};

#[cfg(target_arch = "x86_64")]
mod machine {
    std::arch::global_asm!(
        ".pushsection .tbss.taskheap,\"awT\",@nobits",
        ".p2align 3",
        ".globl taskheap_thread_state",
        ".hidden taskheap_thread_state",
        ".type taskheap_thread_state,@object",
        ".size taskheap_thread_state,8",
        "taskheap_thread_state:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub fn get() -> usize {
        let value: usize;
        // SAFETY: loads the word defined above from the calling thread's block.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + taskheap_thread_state@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) value,
                options(nostack, readonly, preserves_flags, pure),
            )
        };
        value
    }

    pub fn set(value: usize) {
        // SAFETY: stores to the word defined above in the calling thread's block.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + taskheap_thread_state@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) value,
                options(nostack, preserves_flags),
            )
        };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use std::cell::Cell;

    std::thread_local!(static STATE: Cell<usize> = const { Cell::new(0) });

    #[inline(always)]
    pub fn get() -> usize {
        STATE.with(Cell::get)
    }

    pub fn set(value: usize) {
        STATE.with(|state| state.set(value));
    }
}
