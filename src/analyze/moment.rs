//! Which moment the tables speak of.
//!
//! Most programs free everything before they end, so the end says nothing. A table of the peak
//! would be best, but who is alive, who holds what and whether things are equal is only known
//! where somebody looked: at a walk. Rule: where the program ended in good order, or holds less
//! than half of its peak at the end, the tables describe the walk that saw the most; otherwise
//! (killed, aborted, still running) the end itself, by its last walk if that still holds.

use serde::Serialize;

use crate::profile::{Profile, Walk, WalkReason};

/// Walks that saw nearly as much as the fullest are as good; the latest of them knows more
/// about who is idle.
const AS_GOOD: f64 = 0.99;

#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// In words.
    pub text: String,
    pub at_s: f64,
    /// Number of the walk, from 1; null for the end of the run.
    pub walk: Option<usize>,
    pub live_bytes: u64,
    /// A walk, and it saw at least half of what was live at the peak.
    pub saw_most: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct WalkRow {
    pub at_s: f64,
    pub reason: &'static str,
    pub pause_s: f64,
    pub analysis_s: f64,
    pub bytes_read: u64,
    pub blocks: u64,
    pub live_bytes: u64,
    pub walker_bytes: u64,
}

/// The walk that the tables describe; none if they describe the end, or if nobody looked.
pub fn choose(profile: &Profile) -> Option<&Walk> {
    let totals = &profile.totals;
    let last = profile.walks.last()?;
    let in_good_order = profile.program.exit_code.is_some();
    let little_left = totals.live_bytes < totals.peak_live_bytes / 2;
    if in_good_order || little_left {
        // A walk that saw less than the end knows less.
        return fullest(&profile.walks).filter(|walk| walk.live_bytes >= totals.live_bytes / 2);
    }
    let apart = last.live_bytes.abs_diff(totals.live_bytes);
    (apart <= totals.live_bytes / 10).then_some(last)
}

fn fullest(walks: &[Walk]) -> Option<&Walk> {
    let most = walks.iter().map(|walk| walk.live_bytes).max()?;
    walks
        .iter()
        .rfind(|walk| walk.live_bytes as f64 >= most as f64 * AS_GOOD)
}

/// Did the walk see most of what was live at the peak?
pub fn is_near_peak(profile: &Profile, walk: &Walk) -> bool {
    walk.live_bytes >= profile.totals.peak_live_bytes / 10 * 9
}

pub fn describe(profile: &Profile, walk: Option<&Walk>) -> Moment {
    let Some(walk) = walk else {
        return Moment {
            text: "the end of the run".to_owned(),
            at_s: profile.program.duration_s,
            walk: None,
            live_bytes: profile.totals.live_bytes,
            saw_most: false,
        };
    };
    let number = profile
        .walks
        .iter()
        .position(|other| std::ptr::eq(other, walk))
        .map_or(0, |at| at + 1);
    let peak = profile.totals.peak_live_bytes.max(1);
    let share = (walk.live_bytes as f64 * 100.0 / peak as f64).min(100.0);
    Moment {
        text: format!(
            "walk {number} of {} at {:.2} s ({share:.0}% of the peak)",
            profile.walks.len(),
            walk.at_s
        ),
        at_s: walk.at_s,
        walk: Some(number),
        live_bytes: walk.live_bytes,
        saw_most: walk.live_bytes >= profile.totals.peak_live_bytes / 2,
    }
}

pub fn walks(profile: &Profile) -> Vec<WalkRow> {
    let row = |walk: &Walk| WalkRow {
        at_s: walk.at_s,
        reason: match walk.reason {
            WalkReason::Plateau => "plateau",
            WalkReason::Growth => "growth",
            WalkReason::Fall => "fall",
            WalkReason::Limit => "limit",
            WalkReason::Snapshot => "snapshot",
            WalkReason::Exit => "exit",
        },
        pause_s: walk.pause_s,
        analysis_s: walk.analysis_s,
        bytes_read: walk.bytes_read,
        blocks: walk.blocks,
        live_bytes: walk.live_bytes,
        walker_bytes: walk.walker_bytes,
    };
    profile.walks.iter().map(row).collect()
}
