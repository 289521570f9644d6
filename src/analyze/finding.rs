//! What deserves a person's attention: one culprit, one finding.

use serde::Serialize;

use crate::profile::Site;

/// What is wrong. The names are part of the JSON contract.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Copies,
    ThreadLocal,
    Growth,
    Leak,
    FinishedTasks,
    IdleTasks,
    LargeFuture,
    OwnerGone,
    /// Blocks much larger than what is in use or touched.
    Oversized,
    /// A small object keeps a large block.
    Pinned,
    /// Freed, kept by the allocator.
    Retained,
    OutsideHeap,
    ThreadStacks,
    /// A task that blocks its worker; bytes 0.
    HeldWorker,
}

impl Kind {
    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Copies => "copies",
            Kind::ThreadLocal => "thread-local",
            Kind::Growth => "growth",
            Kind::Leak => "leak",
            Kind::FinishedTasks => "finished-tasks",
            Kind::IdleTasks => "idle-tasks",
            Kind::LargeFuture => "large-future",
            Kind::OwnerGone => "owner-gone",
            Kind::Oversized => "oversized",
            Kind::Pinned => "pinned",
            Kind::Retained => "retained",
            Kind::OutsideHeap => "outside-heap",
            Kind::ThreadStacks => "thread-stacks",
            Kind::HeldWorker => "held-worker",
        }
    }

    /// What `report` needs to show the evidence.
    pub fn evidence(self) -> &'static str {
        match self {
            Kind::Copies => "--copies",
            Kind::ThreadLocal => "--thread-locals",
            Kind::Leak => "--leaks",
            Kind::FinishedTasks | Kind::IdleTasks | Kind::LargeFuture => "--tasks",
            Kind::HeldWorker => "--workers",
            Kind::OwnerGone => "--threads",
            Kind::Growth | Kind::Oversized | Kind::Pinned => "--sites",
            Kind::Retained | Kind::OutsideHeap => "--memory",
            Kind::ThreadStacks => "--stacks",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// One line of fact: what, how many, how large, where.
    pub title: String,
    /// What acting on it would give back.
    pub bytes: u64,
    pub site: Option<Site>,
    pub owner_name: Option<String>,
    /// Of owners concerned.
    pub count: u64,
    /// One line that fits the kind.
    pub advice: String,
}
