//! What the command saw from outside while the program ran, besides walks.

use serde::{Deserialize, Serialize};

use super::{FrameId, OwnerId};

/// Samples taken by the command while the program ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    pub at_ms: Vec<u32>,
    pub live_bytes: Vec<u64>,
    pub rss_bytes: Vec<u64>,
    pub tasks_alive: Vec<u64>,
    pub threads_alive: Vec<u32>,
}

/// A runtime worker, watched from outside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    pub thread_name: String,
    pub tid: i32,
    /// Looks that tell what ran.
    pub looks: u64,
    /// Share of the looks at which a task ran; its error is that of so many looks.
    pub busy_share: f64,
    /// The longest stay on one task that a look can't miss; 0 if all were shorter.
    pub longest_stay_s: f64,
    pub longest_on: Option<OwnerId>,
    pub held: Vec<Held>,
}

/// A stay on one task beyond the threshold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    pub owner: Option<OwnerId>,
    pub at_s: f64,
    pub seconds: f64,
    /// `sleeping`, `waiting for a lock`, `computing`, `in a system call`.
    pub state: String,
    /// Nothing tells that the task was not left and entered again meanwhile.
    pub uncertain: bool,
    /// Innermost first.
    pub stack: Vec<FrameId>,
}
