//! The way through `malloc`, `calloc`, `realloc` and `free` while a sample is taken.
//!
//! A sample that costs more than a few percent is not taken in production, and a call of the C
//! library's `malloc` is a hundred instructions. So nearly every call is a handful of our own and
//! a jump: no frame, no register to keep, no question whether anything is set up. The size comes
//! off the bytes to the next sample; if that were more than there are it is put back, and the
//! call is told the recorder like one of an exact recording, which then does the same sum. A thread
//! that has drawn nothing yet has zero bytes left. Of a block that is freed, its place in the
//! recorder's table of counts says whether one was ever recorded there.
//!
//! In machine code because a compiler promises no jump at the end of a function, and the caller's
//! stack pointer is wanted as it was. A call that fails is not looked at.

use std::arch::naked_asm;

use super::family::{heard_calloc, heard_free, heard_malloc, heard_realloc};
use super::next::{CALLOC, FREE, MALLOC, REALLOC};
use crate::record::{PLACE_SHIFT, PLACES, PLACES_BITS};

/// Takes the size in `$size` off, or goes on at label 2 with the size still to be put back.
macro_rules! count {
    ($size:literal, $scratch:literal) => {
        concat!(
            "mov ",
            $scratch,
            ", qword ptr [rip + taskheap_bytes_to_sample@GOTTPOFF]\n",
            "sub qword ptr fs:[",
            $scratch,
            "], ",
            $size,
            "\n",
            "jbe 2f",
        )
    };
}

macro_rules! put_back {
    ($size:literal, $scratch:literal) => {
        concat!("2: add qword ptr fs:[", $scratch, "], ", $size)
    };
}

/// Goes on at label 3 if the block in `rdi` may be recorded.
macro_rules! look {
    () => {
        "mov eax, edi
         shr eax, {shift}
         and eax, {mask}
         mov rcx, qword ptr [rip + {places}]
         cmp byte ptr [rcx + rax], 0
         jne 3f"
    };
}

const MASK: u32 = (1 << PLACES_BITS) - 1;

// The place must come out of an address's lower half.
const _: () = assert!(PLACE_SHIFT + PLACES_BITS <= 32);

/// # Safety
///
/// As the C library's function of this name, which has been found; a sample is being taken.
#[unsafe(naked)]
pub unsafe extern "C" fn malloc() {
    naked_asm!(
        count!("rdi", "rax"),
        "jmp qword ptr [rip + {next}]",
        put_back!("rdi", "rax"),
        "jmp {heard}",
        next = sym MALLOC,
        heard = sym heard_malloc,
    )
}

/// # Safety
///
/// As [`malloc`].
#[unsafe(naked)]
pub unsafe extern "C" fn calloc() {
    naked_asm!(
        "mov rax, rdi",
        "mul rsi",
        "jo 3f",
        count!("rax", "rcx"),
        "jmp qword ptr [rip + {next}]",
        put_back!("rax", "rcx"),
        "3: jmp {heard}",
        next = sym CALLOC,
        heard = sym heard_calloc,
    )
}

/// # Safety
///
/// As [`malloc`].
#[unsafe(naked)]
pub unsafe extern "C" fn realloc() {
    naked_asm!(
        look!(),
        count!("rsi", "rax"),
        "jmp qword ptr [rip + {next}]",
        put_back!("rsi", "rax"),
        "3: jmp {heard}",
        shift = const PLACE_SHIFT,
        mask = const MASK,
        places = sym PLACES,
        next = sym REALLOC,
        heard = sym heard_realloc,
    )
}

/// # Safety
///
/// As [`malloc`].
#[unsafe(naked)]
pub unsafe extern "C" fn free() {
    naked_asm!(
        look!(),
        "jmp qword ptr [rip + {next}]",
        "3: jmp {heard}",
        shift = const PLACE_SHIFT,
        mask = const MASK,
        places = sym PLACES,
        next = sym FREE,
        heard = sym heard_free,
    )
}
