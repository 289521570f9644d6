//! Functions with awkward beginnings, patched in this very process and called.
//!
//! They have the names of jemalloc's and mimalloc's entry points, so that the plan finds them in
//! this test's own executable; what they do is simple enough to be checked.
#![cfg(all(feature = "cli", target_os = "linux", target_arch = "x86_64"))]

use std::arch::global_asm;
use std::sync::{Mutex, OnceLock};

use taskheap::hook::patch::{self, Recorder};
use taskheap::profile::{patches, target};
use taskheap::record::Caller;
use taskheap::sys::executable;
use taskheap::wire::{Allocator, NO_ARGUMENT, PatchRole};

/// Defines a global function of this name.
macro_rules! function {
    ($name:literal, $($line:literal),* $(,)?) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            ".p2align 4",
            concat!($name, ":"),
            $($line,)*
            concat!(".size ", $name, ", . - ", $name),
        );
    };
}

global_asm!(
    ".pushsection .data.patch_test, \"aw\"",
    ".p2align 3",
    "patch_test_next: .quad 0x1000",
    "patch_test_flag: .quad 0",
    ".popsection",
    ".pushsection .text.patch_test, \"ax\""
);

// A distance to data comes first: hands out addresses that rise by 0x100.
function!(
    "mi_malloc",
    "mov rax, qword ptr [rip + patch_test_next]",
    "add qword ptr [rip + patch_test_next], 0x100",
    "ret",
);

// `endbr64`, an immediate behind the distance, and a conditional branch that is too short to stay.
function!(
    "mi_zalloc",
    "endbr64",
    "cmp dword ptr [rip + patch_test_flag], 7",
    "je 2f",
    "jmp mi_malloc",
    "2: xor eax, eax",
    "ret",
);

// A short branch within the bytes of the jump.
function!(
    "mi_calloc",
    "test rdi, rdi",
    "je 2f",
    "imul rdi, rsi",
    "sub rsp, 8",
    "call mi_malloc",
    "add rsp, 8",
    "ret",
    "2: xor eax, eax",
    "ret",
);

// A call is the first thing it does, with a frame that the return address tells apart.
function!(
    "mi_mallocn",
    "push rbx",
    "call mi_malloc",
    "lea rax, [rax + 8]",
    "pop rbx",
    "ret",
);

// Nothing but a jump; the padding behind it is not code.
function!("mi_free", "ret");
function!("mi_cfree", "jmp mi_free");

// Goes back to its second instruction.
function!("mi_expand", "xor eax, eax", "2: dec rsi", "jne 2b", "ret",);

// Frees what nobody can know.
function!("mi_heap_destroy", "ret");

// Five stack slots deep, to see that the arguments behind the sixth are not disturbed.
function!(
    "mi_heap_recalloc_aligned_at",
    "lea rax, [rdi + rsi]",
    "add rax, rdx",
    "add rax, rcx",
    "add rax, r8",
    "add rax, r9",
    "ret",
);
global_asm!(".popsection");

unsafe extern "C" {
    fn mi_malloc(size: usize) -> usize;
    fn mi_zalloc(size: usize) -> usize;
    fn mi_calloc(count: usize, size: usize) -> usize;
    fn mi_mallocn(count: usize, size: usize) -> usize;
    fn mi_free(block: usize);
    fn mi_cfree(block: usize);
    fn mi_expand(block: usize, size: usize) -> usize;
    fn mi_heap_destroy(heap: usize);
    fn mi_heap_recalloc_aligned_at(
        heap: usize,
        block: usize,
        count: usize,
        size: usize,
        align: usize,
        offset: usize,
    ) -> usize;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Alloc(usize, usize),
    Free(usize),
    Realloc(usize, usize, usize),
}
use Event::*;

static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());
static CALLERS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

struct Notes;

impl Recorder for Notes {
    type Taken = usize;
    type Inside = ();

    fn on_alloc(block: usize, size: usize, _align: usize, by: Allocator, caller: &Caller) {
        assert_eq!(by, Allocator::Mimalloc);
        assert_eq!(caller.sp % 16, 0, "the stack after the return");
        CALLERS.lock().unwrap().push(caller.pc);
        EVENTS.lock().unwrap().push(Alloc(block, size));
    }

    fn on_free(block: usize) {
        EVENTS.lock().unwrap().push(Free(block));
    }

    fn take(block: usize) -> usize {
        block
    }

    fn restore(_: usize) {}

    fn on_realloc(taken: usize, block: usize, size: usize, _: Allocator, _: &Caller) {
        EVENTS.lock().unwrap().push(Realloc(taken, block, size));
    }

    fn on_failure() {}
    fn enter() {}
    fn leave(_: ()) {}
    fn mapped(_: usize, _: usize, _: Allocator) {}
    fn unmapped(_: usize, _: usize) {}
}

/// What the command would do to this executable.
fn plan() -> &'static patches::Plan {
    static PLAN: OnceLock<patches::Plan> = OnceLock::new();
    PLAN.get_or_init(|| {
        let executable = std::env::current_exe().unwrap();
        patches::plan(&target::inspect_object(&executable).unwrap())
    })
}

fn events() -> Vec<Event> {
    std::mem::take(&mut EVENTS.lock().unwrap())
}

#[test]
fn patched_functions_do_what_they_did_and_are_heard() {
    let plan = plan();
    assert_eq!(plan.allocators, [Allocator::Mimalloc]);
    let names: Vec<&str> = plan
        .unpatched
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        ["mi_expand", "mi_heap_destroy"],
        "{:?}",
        plan.unpatched
    );
    assert!(plan.unpatched[0].1.contains("branches back"));
    let count = plan.patches.len() as u32;
    let bias = executable::bias().unwrap();

    let mut others = plan.patches.clone();
    others.iter_mut().for_each(|patch| patch.stolen[0] ^= 1);
    // SAFETY: what is not there as the plan says is left alone, which is the point.
    let made = unsafe { patch::apply::<Notes>(&others, &plan.redirects, bias) };
    assert_eq!(made, Ok(0));

    // SAFETY: nobody else calls these functions, and the plan is of this executable.
    let made = unsafe { patch::apply::<Notes>(&plan.patches, &plan.redirects, bias) };
    assert_eq!(made, Ok(count));

    // SAFETY: the functions above take any numbers.
    unsafe {
        assert_eq!(mi_malloc(10), 0x1000);
        assert_eq!(events(), [Alloc(0x1000, 10)]);
        assert_eq!(mi_zalloc(11), 0x1100);
        assert_eq!(
            events(),
            [Alloc(0x1100, 11)],
            "the jump to mi_malloc is not a second call"
        );
        assert_eq!(mi_calloc(3, 5), 0x1200);
        assert_eq!(events(), [Alloc(0x1200, 15)]);
        assert_eq!(mi_calloc(0, 5), 0);
        assert_eq!(events(), []);
        assert_eq!(mi_mallocn(2, 4), 0x1308);
        assert_eq!(events(), [Alloc(0x1308, 8)]);
        mi_free(0x1308);
        mi_cfree(0x1200);
        mi_free(0);
        assert_eq!(events(), [Free(0x1308), Free(0x1200)]);
        assert_eq!(mi_expand(1, 1), 0);
        mi_heap_destroy(1);
        assert_eq!(
            mi_heap_recalloc_aligned_at(1, 20, 300, 4_000, 50_000, 600_000),
            654_321
        );
        assert_eq!(events(), [Realloc(20, 654_321, 1_200_000)]);
    }
    let here = patched_functions_do_what_they_did_and_are_heard as *const () as u64;
    for pc in CALLERS.lock().unwrap().iter() {
        assert!(
            (here..here + 0x4000).contains(pc),
            "{pc:#x} is not in {here:#x}"
        );
    }
}

#[test]
fn this_program_hides_nothing() {
    assert_eq!(plan().bypass, None);
    let patch = plan().patches[0];
    assert_eq!(patch.role, PatchRole::Allocate as u32);
    assert_eq!(patch.arguments.pointer, NO_ARGUMENT);
}
