//! Other orders for the tables than most bytes at the peak first.

use std::cmp::Reverse;

use super::Report;

/// What comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    #[default]
    Peak,
    Live,
    Allocated,
    /// Most allocations.
    Blocks,
    /// Most tasks spawned, most threads.
    Count,
    /// Most bytes per task.
    Mean,
    Name,
}

impl Report {
    /// Sorts the tables of tasks, threads and sites; where a table lacks the figure, it stays.
    pub fn sort(&mut self, order: Order) {
        self.tasks.sort_by_cached_key(|row| {
            let figure = match order {
                Order::Peak => row.peak_live_bytes,
                Order::Live => row.live_bytes,
                Order::Allocated => row.allocated_bytes,
                Order::Blocks => row.allocations,
                Order::Count => row.spawned,
                Order::Mean => row.per_task.mean.unwrap_or(0),
                Order::Name => 0,
            };
            (Reverse(figure), named(order, &row.name))
        });
        self.threads.sort_by_cached_key(|row| {
            let figure = match order {
                Order::Peak => row.peak_live_bytes,
                Order::Live => row.live_bytes,
                Order::Allocated => row.allocated_bytes,
                Order::Blocks => row.allocations,
                Order::Count => row.count,
                Order::Mean | Order::Name => 0,
            };
            (Reverse(figure), named(order, &row.name))
        });
        self.sites.sort_by_cached_key(|row| {
            let figure = match order {
                Order::Peak => row.peak_live_bytes,
                Order::Live => row.live_bytes,
                Order::Allocated => row.allocated_bytes,
                Order::Blocks => row.allocations,
                Order::Count | Order::Mean | Order::Name => 0,
            };
            (Reverse(figure), named(order, &row.site.function))
        });
    }
}

fn named(order: Order, name: &str) -> Option<String> {
    (order == Order::Name).then(|| name.to_owned())
}
