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
    /// The same concurrency either way, calculated; null without tasks or without stacks.
    pub either: Option<Either>,
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

impl StackTotals {
    /// Of all tasks that are alive.
    pub fn task_bytes(&self) -> u64 {
        let all = self
            .tasks
            .iter()
            .map(|t| t.bytes_each.saturating_mul(t.live));
        all.fold(0, u64::saturating_add)
    }

    /// Of all threads; none if any is not known.
    pub fn resident_bytes(&self) -> Option<u64> {
        self.of_threads(|thread| thread.resident_each)
    }

    pub fn reserved_bytes(&self) -> Option<u64> {
        self.of_threads(|thread| thread.reserved_each)
    }

    fn of_threads(&self, each: impl Fn(&ThreadStack) -> Option<u64>) -> Option<u64> {
        let alive = self.threads.iter().filter(|thread| thread.count > 0);
        alive
            .map(|thread| Some(each(thread)?.saturating_mul(thread.count)))
            .sum()
    }

    /// What as many threads as there are tasks would take, and the tasks do.
    fn calculated(&self) -> Option<Either> {
        let tasks: u64 = self.tasks.iter().map(|task| task.live).sum();
        let each = self.per_thread_resident_bytes?;
        (tasks > 0).then(|| Either {
            tasks,
            task_bytes: self.task_bytes(),
            resident_bytes: each.saturating_mul(tasks),
            reserved_bytes: self
                .per_thread_reserved_bytes
                .map(|each| each.saturating_mul(tasks)),
        })
    }

    fn with_either(self) -> StackTotals {
        StackTotals {
            either: self.calculated(),
            ..self
        }
    }

    /// The tasks of this one with the threads of another run, of those kinds that it has several
    /// of: the main thread waits for nobody's request.
    pub fn beside(&self, threads: &StackTotals) -> StackTotals {
        let threads: Vec<ThreadStack> = (threads.threads.iter())
            .filter(|thread| thread.count > 1)
            .cloned()
            .collect();
        let each = |bytes: fn(&ThreadStack) -> Option<u64>| {
            mean(threads.iter().map(|thread| (bytes(thread), thread.count)))
        };
        StackTotals {
            tasks: self.tasks.clone(),
            per_task_bytes: self.per_task_bytes,
            per_thread_reserved_bytes: each(|thread| thread.reserved_each),
            per_thread_resident_bytes: each(|thread| thread.resident_each),
            threads,
            either: None,
        }
        .with_either()
    }
}

/// The same concurrency, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Either {
    pub tasks: u64,
    pub task_bytes: u64,
    /// As threads: touched.
    pub resident_bytes: u64,
    pub reserved_bytes: Option<u64>,
}

pub fn totals(tasks: &[TaskRow], threads: &[ThreadRow]) -> StackTotals {
    let live: u64 = tasks.iter().map(|t| t.live).sum();
    let weight = |count: u64| if live == 0 { 1 } else { count };
    let alive = || threads.iter().filter(|t| t.alive > 0);
    let totals = StackTotals {
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
        either: None,
    };
    totals.with_either()
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
