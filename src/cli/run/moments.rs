//! When to walk.
//!
//! Walking at fixed intervals misses short peaks and stops a quiet program for nothing. A walk
//! follows the program instead: when its live bytes have come to rest after growing or falling,
//! again when the rest lasts (idle tasks show only then), when they outgrow those at the last
//! walk, when a limit is crossed, and before exit. The first rest of a heap worth looking at is
//! walked whatever it costs; beyond it pauses may take a twentieth of the run, of which growth
//! alone may not use up more than half: the rest that follows it tells more.

use std::time::Duration;

use crate::profile::WalkReason;

/// Live bytes rest when they stay within this share, for so long.
const STILL: f64 = 0.02;
const REST_MS: u32 = 120;
/// Or this many bytes: noise of a runtime.
const NOISE: u64 = 64 << 10;
/// Looked at again when the rest has lasted so long, and then whenever it has lasted so many times
/// as long as at the last look.
const LONG_REST_MS: u32 = 1200;
const LONGER: u32 = 3;
const OUTGROWN: f64 = 1.5;
const SHARE_OF_RUN: f64 = 0.05;
/// Allowed before the run is long enough for its share to be anything.
const ALLOWANCE: Duration = Duration::from_millis(100);
/// Less than this is not worth a look while it grows.
const SMALL: u64 = 1 << 20;

/// Decides from samples of live bytes. Values in, reasons out: no clock of its own.
#[derive(Default)]
pub struct Moments {
    /// What is not worth a look: changes, and sizes while they grow.
    noise: u64,
    small: u64,
    /// A rest that follows no change is worth none either.
    only_changes: bool,
    limit: Option<u64>,
    limit_crossed: bool,
    /// Around which live bytes rest, and since when.
    level: u64,
    since_ms: u32,
    /// Live bytes at the last walk, and how long the rest had lasted then; none before the first.
    walked: Option<(u64, u32)>,
    /// The same, as of the last question whether a walk is due: what the walk itself counts may
    /// differ from the samples by what threads have not yet added up.
    asked: (u64, u32),
    /// Pauses since the start; since the first rest, once there was one.
    paused: Duration,
    rested: bool,
}

impl Moments {
    pub fn new(limit: Option<u64>) -> Moments {
        Moments {
            limit,
            noise: NOISE,
            small: SMALL,
            ..Moments::default()
        }
    }

    /// For what is resident beside the heap: mappings that the program makes itself, stacks. It
    /// comes in pages that are touched at any time.
    pub fn beside_the_heap() -> Moments {
        Moments {
            noise: 4 << 20,
            small: 16 << 20,
            only_changes: true,
            walked: Some((0, 0)),
            ..Moments::default()
        }
    }

    /// A sample. To be taken at every tick, whether a walk can be made or not.
    pub fn observe(&mut self, now_ms: u32, live: u64) {
        let band = ((self.level as f64 * STILL) as u64).max(self.noise);
        if live.abs_diff(self.level) > band {
            self.level = live;
            self.since_ms = now_ms;
        }
    }

    /// Why a walk is due now, if it is.
    pub fn due(&mut self, now_ms: u32, live: u64) -> Option<WalkReason> {
        let rest = now_ms.saturating_sub(self.since_ms);
        self.asked = (live, rest);
        if self.limit.is_some_and(|limit| live >= limit) && !self.limit_crossed {
            self.limit_crossed = true;
            return Some(WalkReason::Limit);
        }
        let reason = match self.walked {
            None if rest >= REST_MS => Some(WalkReason::Plateau),
            None if live > self.small => Some(WalkReason::Growth),
            None => None,
            Some((last, at_rest)) => self.compare(live, last, rest, at_rest),
        };
        reason.filter(|reason| self.may_pause(now_ms, *reason, live))
    }

    fn compare(&self, live: u64, last: u64, rest: u32, at_rest: u32) -> Option<WalkReason> {
        let moved = live.abs_diff(last) > ((last as f64 * STILL * 2.0) as u64).max(self.noise);
        let longer = rest >= (at_rest.max(REST_MS) * LONGER).max(LONG_REST_MS);
        let lasted = !self.only_changes && (at_rest < REST_MS || longer);
        if rest >= REST_MS && (moved || lasted) {
            return Some(match moved && live < last {
                true => WalkReason::Fall,
                false => WalkReason::Plateau,
            });
        }
        let outgrown = live > self.small && live as f64 > last as f64 * OUTGROWN;
        outgrown.then_some(WalkReason::Growth)
    }

    fn may_pause(&self, now_ms: u32, reason: WalkReason, live: u64) -> bool {
        let share = f64::from(now_ms) / 1000.0 * SHARE_OF_RUN;
        let growth = reason == WalkReason::Growth;
        let allowed = match (self.rested, growth) {
            (true, true) => share / 2.0,
            (true, false) => share,
            (false, false) if live > self.small => return true,
            (false, _) => share.max(ALLOWANCE.as_secs_f64()),
        };
        self.walked.is_none() || self.paused.as_secs_f64() < allowed
    }

    /// Does the share of the run allow for a pause that something else asks for?
    pub fn may_pause_for_another(&self, now_ms: u32) -> bool {
        let share = f64::from(now_ms) / 1000.0 * SHARE_OF_RUN;
        self.paused.as_secs_f64() < share.max(ALLOWANCE.as_secs_f64())
    }

    /// The walk that was due is made. While it stopped the program, nothing rested.
    pub fn walked(&mut self, now_ms: u32, pause: Duration) {
        let (live, rest) = self.asked;
        let stopped = u32::try_from(pause.as_millis()).unwrap_or(u32::MAX);
        self.since_ms = self.since_ms.saturating_add(stopped).min(now_ms);
        self.walked = Some((live, rest));
        if !self.rested && rest >= REST_MS && live > self.small {
            self.rested = true;
            self.paused = Duration::ZERO;
        } else {
            self.paused += pause;
        }
    }

    /// Is the last walk so recent, and so like what is there now, that another tells nothing?
    pub fn is_fresh(&self, now_ms: u32, live: u64) -> bool {
        const RECENT_MS: u32 = 300;
        let rest = now_ms.saturating_sub(self.since_ms);
        self.walked.is_some_and(|(last, at_rest)| {
            live.abs_diff(last) <= self.noise && rest.saturating_sub(at_rest) < RECENT_MS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// Times and reasons of the walks that a curve of live bytes leads to.
    fn walks(curve: impl Fn(u32) -> u64, until_ms: u32, pause: Duration) -> Vec<(u32, WalkReason)> {
        let mut moments = Moments::new(None);
        let mut found = Vec::new();
        for now in (0..until_ms).step_by(5) {
            moments.observe(now, curve(now));
            if let Some(reason) = moments.due(now, curve(now)) {
                moments.walked(now, pause);
                found.push((now, reason));
            }
        }
        found
    }

    #[test]
    fn a_rest_is_walked_soon_and_again_when_it_lasts() {
        let found = walks(|_| 50 * MB, 3000, Duration::from_millis(1));
        assert!(found[0].0 <= 5 && found.len() >= 2, "{found:?}");
        assert!(found.last().unwrap().0 >= 900, "{found:?}");
    }

    #[test]
    fn a_short_peak_is_walked() {
        let curve = |now| {
            if (1000..1050).contains(&now) {
                80 * MB
            } else {
                2 * MB
            }
        };
        let found = walks(curve, 2000, Duration::from_millis(10));
        assert!(
            found.iter().any(|(at, _)| (1000..1050).contains(at)),
            "{found:?}"
        );
    }

    #[test]
    fn a_server_that_is_never_quiet_is_walked_within_the_budget() {
        let noise =
            |now: u32| 40 * MB + u64::from(now.wrapping_mul(2_654_435_761) >> 8) % (30 * MB);
        let pause = Duration::from_millis(40);
        let found = walks(noise, 20_000, pause);
        assert!(!found.is_empty());
        assert!(
            pause * found.len() as u32 <= Duration::from_millis(1140),
            "{}",
            found.len()
        );
    }

    #[test]
    fn the_first_rest_is_walked_though_growing_was_expensive() {
        let curve = |now: u32| (u64::from(now.min(1000)) * MB / 4).max(MB / 2);
        let found = walks(curve, 2000, Duration::from_millis(300));
        let rests = found.iter().filter(|(_, why)| *why == WalkReason::Plateau);
        assert!(rests.clone().any(|(at, _)| *at >= 1000), "{found:?}");
    }

    #[test]
    fn what_is_mapped_beside_the_heap_is_walked_once_it_rests() {
        let mut moments = Moments::beside_the_heap();
        let mut found = Vec::new();
        for now in (0..5000u32).step_by(5) {
            let beside = (u64::from(now.saturating_sub(500)) * MB).clamp(3 * MB, 100 * MB);
            moments.observe(now, beside);
            if let Some(reason) = moments.due(now, beside) {
                found.push((now, reason));
                moments.walked(now, Duration::from_millis(2));
            }
        }
        // While it grows, and once when it has come to rest.
        let (last, before) = found.split_last().unwrap();
        assert!(matches!(last, (700..750, WalkReason::Plateau)), "{found:?}");
        assert!(before.iter().all(|(_, why)| *why == WalkReason::Growth));
    }

    #[test]
    fn a_fall_is_walked() {
        let curve = |now| if now < 1000 { 80 * MB } else { 5 * MB };
        let found = walks(curve, 3000, Duration::from_millis(5));
        assert!(
            found
                .iter()
                .any(|(at, why)| *at > 1000 && *why == WalkReason::Fall),
            "{found:?}"
        );
    }

    #[test]
    fn the_limit_is_walked_once() {
        let mut moments = Moments::new(Some(10 * MB));
        assert_eq!(moments.due(0, 20 * MB), Some(WalkReason::Limit));
        moments.walked(0, Duration::ZERO);
        assert_eq!(moments.due(5, 20 * MB), None);
    }
}
