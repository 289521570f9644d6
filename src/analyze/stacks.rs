//! What waiting costs: the cell of a task beside the stack of a thread.

use serde::Serialize;

use super::tasks::TaskRow;
use super::threads::ThreadRow;

#[derive(Clone, Debug, Serialize)]
pub struct StackTotals {
    pub tasks: Vec<TaskStack>,
    pub threads: Vec<ThreadStack>,
    /// Mean over the tasks that are alive; over the types where none is. Null without tasks.
    pub per_task_bytes: Option<u64>,
    pub per_thread_reserved_bytes: Option<u64>,
    pub per_thread_resident_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TaskStack {
    pub name: String,
    pub bytes_each: u64,
    pub live: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ThreadStack {
    pub name: String,
    pub count: u64,
    pub reserved_each: Option<u64>,
    pub resident_each: Option<u64>,
}

pub fn totals(tasks: &[TaskRow], threads: &[ThreadRow]) -> StackTotals {
    let live: u64 = tasks.iter().map(|t| t.live).sum();
    let weight = |count: u64| if live == 0 { 1 } else { count };
    let alive = || threads.iter().filter(|t| t.alive > 0);
    StackTotals {
        per_task_bytes: mean(tasks.iter().map(|t| (Some(t.cell_bytes), weight(t.live)))),
        per_thread_reserved_bytes: mean(alive().map(|t| (t.stack.reserved_each, t.alive))),
        per_thread_resident_bytes: mean(alive().map(|t| (t.stack.resident_each, t.alive))),
        tasks: tasks
            .iter()
            .map(|t| TaskStack {
                name: t.name.clone(),
                bytes_each: t.cell_bytes,
                live: t.live,
            })
            .collect(),
        threads: threads
            .iter()
            .map(|t| ThreadStack {
                name: t.name.clone(),
                count: t.alive,
                reserved_each: t.stack.reserved_each,
                resident_each: t.stack.resident_each,
            })
            .collect(),
    }
}

/// Of values that are known, each counted so often.
fn mean(values: impl Iterator<Item = (Option<u64>, u64)>) -> Option<u64> {
    let (mut sum, mut count) = (0_u128, 0_u128);
    for (value, times) in values.filter_map(|(value, times)| Some((value?, times))) {
        sum += u128::from(value) * u128::from(times);
        count += u128::from(times);
    }
    (count > 0).then(|| u64::try_from(sum / count).unwrap_or(u64::MAX))
}
