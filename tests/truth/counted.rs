//! A program that counts in its own allocator, per thread.
//!
//! taskheap stands below that allocator, so it sees what the program counts and, besides, what the
//! C library and std take from malloc directly. Those are told by their stacks: they don't pass
//! through the program's allocator.

use std::path::Path;

use crate::programs::{Sample, adds_up, number, pprof, program, recorded, row, told};

/// Allocations and their bytes, blocks that are still there and their bytes.
type Figures = [u64; 4];

/// The program's own counts: of the main thread, and of all others.
pub fn own_counts(output: &[u8]) -> [Figures; 2] {
    let text = std::str::from_utf8(output).unwrap();
    let mut rows = text.lines().map(|line| {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let counts: [u64; 4] = std::array::from_fn(|_| numbers.next().unwrap());
        counts
    });
    std::array::from_fn(|_| rows.next().unwrap())
}

/// What stayed of all that was allocated, on whichever thread it was freed.
fn whole([main, others]: [Figures; 2]) -> Figures {
    let [allocations, bytes, frees, freed] = std::array::from_fn(|at| main[at] + others[at]);
    [allocations, bytes, allocations - frees, bytes - freed]
}

fn sum<'s>(samples: impl Iterator<Item = &'s Sample>) -> Figures {
    samples.fold([0; 4], |mut sum, sample| {
        for (sum, value) in sum.iter_mut().zip(&sample.values) {
            *sum += value;
        }
        sum
    })
}

fn passes_the_allocator(sample: &Sample) -> bool {
    let own = |name: &String| name.contains("counted::Counting as ");
    sample.functions.iter().any(own)
}

/// Who takes memory beside the program's allocator. `pthread_getattr_np` asks where the main stack
/// is, and reads /proc/self/maps for it; the thread vector of TLS and the lists of destructors are
/// the C library's; std has its own list and its handle of a thread made by `System`, so that
/// a global allocator may use them.
const BESIDE: [&str; 4] = [
    "pthread_getattr_np",
    "allocate_dtv",
    "__cxa_thread_atexit_impl",
    "<std::alloc::System as core::alloc::Allocator>",
];

fn is_beside(sample: &Sample) -> bool {
    let known = |name: &String| BESIDE.iter().any(|known| name.contains(known));
    sample.functions.iter().any(known)
}

struct Run {
    counted: [Figures; 2],
    totals: Figures,
    others: [u64; 2],
}

/// Records it and compares with what it counted, to the byte.
fn run(folder: &Path, rounds: &str, threads: &str) -> Run {
    let profile = folder.join(format!("{rounds}-{threads}.taskheap"));
    let args = [rounds, threads];
    let counted = own_counts(&told(&mut recorded(&profile, &program("counted"), &args)));
    let report = adds_up(&profile);
    let samples = pprof(&profile);
    let (own, beside): (Vec<&Sample>, Vec<&Sample>) = samples
        .iter()
        .partition(|sample| passes_the_allocator(sample));
    assert_eq!(sum(own.into_iter()), whole(counted), "{rounds} {threads}");
    for sample in beside {
        assert!(is_beside(sample), "{:#?}", sample.functions);
    }
    let totals = [
        "allocations",
        "allocated_bytes",
        "live_blocks",
        "live_bytes",
    ];
    let others = match threads {
        "0" => [0; 2],
        _ => {
            let row = row(&report, "threads", "/name", "counted-*");
            assert_eq!(number(row, "count").to_string(), threads);
            [number(row, "allocations"), number(row, "allocated_bytes")]
        }
    };
    Run {
        counted,
        totals: totals.map(|figure| number(&report["totals"], figure)),
        others,
    }
}

/// What is taken beside the allocator does not depend on how much the program does: of two runs
/// the difference is the program's own, in total and for its threads.
fn differ_by_what_was_counted(threads: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (less, more) = (
        run(folder.path(), "50", threads),
        run(folder.path(), "1700", threads),
    );
    let beside = |run: &Run| {
        let own = whole(run.counted);
        std::array::from_fn::<u64, 4, _>(|at| run.totals[at] - own[at])
    };
    assert_eq!(beside(&less), beside(&more));
    let others = |run: &Run| [0, 1].map(|at| run.others[at] - run.counted[1][at]);
    assert_eq!(others(&less), others(&more));
}

#[test]
fn one_thread_is_counted_to_the_byte() {
    differ_by_what_was_counted("0");
}

#[test]
fn six_threads_are_counted_to_the_byte() {
    differ_by_what_was_counted("6");
}
