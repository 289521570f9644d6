//! What is read of a process from outside without stopping it.

use crate::profile::recording::Recorded;
use crate::sys::mem::ProcessMemory;
use crate::wire::RowState;

/// Resident bytes of a process, 0 if it is gone.
pub fn resident(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

/// Tasks whose cell says that they are complete, read while the process waits at its end.
pub fn finished_tasks(recorded: &Recorded) -> Option<Vec<u32>> {
    /// tokio's state word: the task has finished.
    const COMPLETE: u64 = 2;
    let memory = ProcessMemory::open(recorded.pid()).ok()?;
    let tables = recorded.tables();
    let is_alive = |at: &u32| tables.rows[*at as usize].state == RowState::TaskAlive as u32;
    let rows: Vec<u32> = (0..tables.rows.len() as u32).filter(is_alive).collect();
    let mut finished = Vec::new();
    for group in rows.chunks(256) {
        let wanted: Vec<(u64, usize)> = group
            .iter()
            .map(|row| (tables.rows[*row as usize].cell, 8))
            .filter(|(cell, _)| *cell != 0)
            .collect();
        let mut words = vec![0u8; wanted.len() * 8];
        if memory.read_ranges(&wanted, &mut words) != words.len() {
            return None;
        }
        let known = group
            .iter()
            .filter(|row| tables.rows[**row as usize].cell != 0);
        for (row, word) in known.zip(words.chunks_exact(8)) {
            let mut bytes = [0u8; 8];
            bytes.copy_from_slice(word);
            if u64::from_le_bytes(bytes) & COMPLETE != 0 {
                finished.push(*row);
            }
        }
    }
    Some(finished)
}
