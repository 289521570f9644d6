//! The peak, without copying the world.
//!
//! At the end every counter must tell what it was when the whole program's live bytes were
//! highest. Copying all counters at each new maximum is out of the question. Instead there is an
//! epoch: when live bytes turn down after a new maximum, the epoch is raised, and a counter whose
//! epoch is old saves its value before it changes. A counter with an old epoch at the end has not
//! changed since the peak.
//!
//! The sum of live bytes is one word that all threads would fight for. So each thread keeps back
//! up to a batch, which grows with the heap; while there is one thread the batch is zero and the
//! peak exact. The bound, threads times batch, is told with the profile.

use std::sync::atomic::Ordering::Relaxed;

use super::start::header;
use super::thread::Thread;
use crate::wire::Header;

/// A batch is at most this share of the peak, divided among the threads.
const SHARE: i64 = 512;

/// Live bytes and blocks of the whole program change by so much. To be called before any counter
/// changes: this is what raises the epoch.
#[inline(always)]
pub fn changed(thread: &mut Thread, bytes: i64, blocks: i64) {
    thread.pending_bytes += bytes;
    thread.pending_blocks += blocks;
    let Some(header) = header() else { return };
    let batch = header.batch_bytes.load(Relaxed);
    if thread.pending_bytes > batch || thread.pending_bytes < -batch || batch == 0 {
        flush(thread, header);
    } else {
        // So that a reader can add up to the byte at any moment.
        thread
            .slot()
            .pending_bytes
            .store(thread.pending_bytes, Relaxed);
        thread
            .slot()
            .pending_blocks
            .store(thread.pending_blocks, Relaxed);
    }
}

#[inline(always)]
fn flush(thread: &mut Thread, header: &Header) {
    let (bytes, blocks) = (thread.pending_bytes, thread.pending_blocks);
    thread.pending_bytes = 0;
    thread.pending_blocks = 0;
    let alone = header.threads_alive.load(Relaxed) <= 1;
    let (live, live_blocks) = if alone {
        let live = header.sums.live_bytes.load(Relaxed) + bytes;
        let live_blocks = header.sums.live_blocks.load(Relaxed) + blocks;
        header.sums.live_bytes.store(live, Relaxed);
        header.sums.live_blocks.store(live_blocks, Relaxed);
        (live, live_blocks)
    } else {
        thread.slot().pending_bytes.store(0, Relaxed);
        thread.slot().pending_blocks.store(0, Relaxed);
        (
            header.sums.live_bytes.fetch_add(bytes, Relaxed) + bytes,
            header.sums.live_blocks.fetch_add(blocks, Relaxed) + blocks,
        )
    };
    if live > header.sums.peak_bytes.load(Relaxed) {
        header.sums.peak_bytes.fetch_max(live, Relaxed);
        header.sums.peak_blocks.store(live_blocks, Relaxed);
        header
            .sums
            .peak_ms
            .store(header.now_ms.load(Relaxed), Relaxed);
        header.sums.rising.store(1, Relaxed);
    } else if header.sums.rising.load(Relaxed) != 0
        && live < header.sums.peak_bytes.load(Relaxed)
        && header.sums.rising.swap(0, Relaxed) != 0
    {
        header.epoch.fetch_add(1, Relaxed);
        set_batch(header);
    }
}

/// A thread has come or gone, or the heap has grown.
pub fn set_batch(header: &Header) {
    let threads = i64::from(header.threads_alive.load(Relaxed));
    let batch = match threads {
        0 | 1 => 0,
        _ => (header.sums.peak_bytes.load(Relaxed) / (SHARE * threads)).clamp(256, 1 << 20),
    };
    header.batch_bytes.store(batch, Relaxed);
}

/// Adds what the thread has kept back, when it ends.
pub fn settle(thread: &mut Thread) {
    if let Some(header) = header() {
        flush(thread, header);
    }
}
