//! Programs that tell where their blocks are.

use std::alloc::{Layout, alloc, alloc_zeroed};
use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;

/// Threads of [`owners`].
pub const THREADS: usize = 5;

static OUT: AtomicU64 = AtomicU64::new(0);

fn tell(line: String) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    OUT.fetch_add(1, SeqCst);
}

/// Does nothing unless a test has started this binary again.
#[test]
fn program() {
    let Ok(name) = std::env::var("WALK_PROGRAM") else {
        return;
    };
    tell(String::new());
    match name.as_str() {
        "holders" => holders(),
        "hidden" => hidden(),
        "owners" => owners(),
        "neighbours" => neighbours(),
        "buffers" => buffers(),
        other => panic!("no program {other}"),
    }
}

fn wait() {
    tell("READY".to_owned());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

/// A block with these words in it, told under this name.
fn block(name: &str, size: usize, words: &[u64]) -> u64 {
    let layout = Layout::from_size_align(size, 16).unwrap();
    // SAFETY: the size is not zero, and the words fit in.
    let address = unsafe {
        let block = alloc(layout);
        assert!(!block.is_null() && words.len() * 8 <= size);
        std::ptr::write_bytes(block, 0, size);
        for (at, word) in words.iter().enumerate() {
            block.cast::<u64>().add(at).write(*word);
        }
        block as u64
    };
    tell(format!("BLOCK {name} {address} {size}"));
    address
}

/// Runs on a thread that ends, so that no pointer stays behind on a stack in use.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

static PLAIN: AtomicU64 = AtomicU64::new(0);
static MIDDLE: AtomicU64 = AtomicU64::new(0);
static TAGGED: AtomicU64 = AtomicU64::new(0);
static BEHIND: AtomicU64 = AtomicU64::new(0);
static MAPPED: AtomicU64 = AtomicU64::new(0);
static CHAIN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

fn holders() {
    apart(|| {
        PLAIN.store(block("plain", 100, &[]), SeqCst);
        MIDDLE.store(block("middle", 100, &[]) + 40, SeqCst);
        TAGGED.store(block("tagged", 100, &[]) | 1, SeqCst);
        BEHIND.store(block("behind", 96, &[]) + 96, SeqCst);
        MAPPED.store(block("mapped", 1 << 20, &[]) + 5000, SeqCst);
        let end = block("chain", 64, &[]);
        let long = (0..1000).fold(end, |next, _| block("chain", 64, &[1, next]));
        CHAIN.store(long, SeqCst);
        for _ in 0..20 {
            block("lost", 3000, &[]);
        }
        in_own_memory();
        in_epoll();
    });
    let (ready, begun) = mpsc::channel();
    for _ in 0..3 {
        let ready = ready.clone();
        std::thread::spawn(move || {
            OWN.set(block("local", 200, &[]));
            let mut key = 0;
            // SAFETY: the key is ours; nobody frees the block.
            unsafe {
                libc::pthread_key_create(&mut key, None);
                libc::pthread_setspecific(key, block("key", 200, &[]) as *const libc::c_void);
            }
            let held = [std::hint::black_box(block("stack", 200, &[]))];
            ready.send(()).unwrap();
            loop {
                std::thread::park();
                std::hint::black_box(&held);
            }
        });
    }
    (0..3).for_each(|_| begun.recv().unwrap());
    wait();
}

/// A pointer in memory that the program has mapped.
fn in_own_memory() {
    // SAFETY: the kernel chooses the address; the first word is written only.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let own = libc::mmap(std::ptr::null_mut(), 1 << 16, rights, how, -1, 0);
        assert_ne!(own, libc::MAP_FAILED);
        own.cast::<u64>().add(100).write(block("own", 300, &[]));
    }
}

/// A pointer that only the kernel has.
fn in_epoll() {
    let held = block("epoll", 300, &[]);
    // SAFETY: the event is ours; the descriptors stay open.
    unsafe {
        let epoll = libc::epoll_create1(0);
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: held,
        };
        let other = libc::eventfd(0, 0);
        assert_eq!(
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, other, &mut event),
            0
        );
    }
}

static HIDDEN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

fn hidden() {
    apart(|| {
        let key = 0x5bd1_e995_7f4a_7c15;
        for n in 0..10 {
            HIDDEN[n].store(block("tagged", 500, &[]) | 0xabcd << 48, SeqCst);
            HIDDEN[10 + n].store(!block("inverted", 500, &[]), SeqCst);
            HIDDEN[20 + n].store(block("masked", 500, &[]) ^ key, SeqCst);
        }
        // A list whose links are the exclusive or of both neighbours; two are known.
        let list: Vec<u64> = (0..10).map(|_| block("linked", 32, &[])).collect();
        for n in 0..10 {
            let before = if n > 0 { list[n - 1] } else { 0 };
            let after = if n < 9 { list[n + 1] } else { 0 };
            // SAFETY: a block of ours of 32 bytes.
            unsafe { (list[n] as *mut u64).write(before ^ after) };
        }
        HIDDEN[40].store(list[0], SeqCst);
        HIDDEN[41].store(list[1], SeqCst);
        drop(list);
        for _ in 0..20 {
            block("lost", 3000, &[]);
        }
    });
    wait();
}

static TABLE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static LOCAL: Cell<u64> = const { Cell::new(0) };
}

fn thread_pointer() -> u64 {
    let pointer: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word of the thread's control block is its own address.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer)
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer)
    };
    pointer
}

fn owners() {
    apart(|| {
        let parts: Vec<u64> = (0..100).map(|_| block("table", 1000, &[])).collect();
        TABLE.store(block("table", 1000, &parts) as *mut u8, SeqCst);
    });
    tell(format!("STATIC TABLE {} 8", TABLE.as_ptr() as u64));
    let (ready, begun) = mpsc::channel();
    for n in 0..THREADS {
        let ready = ready.clone();
        std::thread::spawn(move || {
            let part = block("local", 20_000, &[1, 2, 3]);
            LOCAL.set(block("local", 30_000, &[part]));
            if n == 0 {
                let place = LOCAL.with(|local| local.as_ptr() as u64);
                tell(format!(
                    "LOCAL {} 8",
                    place as i64 - thread_pointer() as i64
                ));
            }
            ready.send(()).unwrap();
            loop {
                std::thread::park();
            }
        });
    }
    (0..THREADS).for_each(|_| begun.recv().unwrap());
    wait();
}

static MAPS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

#[inline(never)]
fn use_stack() {
    let deep = [1u8; 500 << 10];
    std::hint::black_box(&deep);
}

fn neighbours() {
    let (ready, begun) = mpsc::channel();
    for n in 0..8 {
        // Between the stacks lie blocks of malloc and memory of the program's own: the kernel
        // makes one mapping of neighbours.
        for part in 0..5 {
            let layout = Layout::from_size_align(1 << 20, 16).unwrap();
            // SAFETY: the size is not zero; a quarter of it is written.
            let address = unsafe {
                let block = alloc_zeroed(layout);
                std::ptr::write_bytes(block, 1, 1 << 18);
                block as u64
            };
            tell(format!("BLOCK large {address} {}", 1 << 20));
            MAPS[n * 5 + part].store(address, SeqCst);
        }
        // SAFETY: the kernel chooses the address of 8 MB that are ours.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let own = libc::mmap(std::ptr::null_mut(), 8 << 20, rights, how, -1, 0);
            assert_ne!(own, libc::MAP_FAILED);
            std::ptr::write_bytes(own.cast::<u8>(), 1, 8 << 20);
            tell(format!("MAP {} {}", own as u64, 8 << 20));
        }
        let ready = ready.clone();
        std::thread::spawn(move || {
            use_stack();
            ready.send(()).unwrap();
            loop {
                std::thread::park();
            }
        });
        begun.recv().unwrap();
    }
    wait();
}

static VECTORS: [AtomicU64; 96] = [const { AtomicU64::new(0) }; 96];

fn buffers() {
    apart(|| {
        let size = 1u64 << 16;
        let noise: Vec<u64> = (1..=size / 8).collect();
        for n in 0..10 {
            let mut at = n * 9;
            // As `Vec` has it: capacity, pointer, length.
            for (name, capacity, len) in [
                ("emptied", size, 0),
                ("full", size, size),
                ("boxed", 0, size),
            ] {
                VECTORS[at].store(capacity, SeqCst);
                VECTORS[at + 1].store(block(name, size as usize, &noise), SeqCst);
                VECTORS[at + 2].store(len, SeqCst);
                at += 3;
            }
        }
    });
    wait();
}
