//! How long a thread has been on one task, as far as looks can tell.
//!
//! A look that comes late counts for little: the command itself may not have been running, and
//! then nobody knows what was meanwhile.

use std::time::Duration;

/// The most that one look can count for.
pub const MOST_OF_A_LOOK: Duration = Duration::from_millis(12);
/// From here on the stay is watched, and what is watched is certain.
pub const SUSPECTED_AFTER: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub struct Stay {
    id: u64,
    counted: Duration,
    suspected: bool,
    beyond: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    None,
    /// It is worth being watched.
    Suspected,
    /// It has just passed the threshold.
    Beyond,
    /// A stay that was watched is over.
    Ended {
        counted: Duration,
    },
}

impl Stay {
    /// The thread is on this task (0: on none), `since` the last look, which counts for
    /// [`MOST_OF_A_LOOK`] at most for each look that others had meanwhile. `unbroken`: it has not left
    /// it since it is watched.
    pub fn look(&mut self, id: u64, since: Duration, unbroken: bool, threshold: Duration) -> Event {
        if id != self.id || !unbroken {
            let ended = std::mem::replace(
                self,
                Stay {
                    id,
                    ..Stay::default()
                },
            );
            return match ended.suspected {
                true => Event::Ended {
                    counted: ended.counted,
                },
                false => Event::None,
            };
        }
        if id == 0 {
            return Event::None;
        }
        self.counted += since;
        if !self.suspected && self.counted >= SUSPECTED_AFTER {
            self.suspected = true;
            return Event::Suspected;
        }
        if self.suspected && !self.beyond && self.counted >= threshold {
            self.beyond = true;
            return Event::Beyond;
        }
        Event::None
    }

    /// The threshold was passed, but nothing can be said yet.
    pub fn ask_again(&mut self) {
        self.beyond = false;
    }

    pub fn counted(&self) -> Duration {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(5);
    const THRESHOLD: Duration = Duration::from_millis(100);

    fn events(ids: impl IntoIterator<Item = u64>) -> Vec<Event> {
        let mut stay = Stay::default();
        ids.into_iter()
            .map(|id| stay.look(id, TICK, true, THRESHOLD))
            .filter(|event| *event != Event::None)
            .collect()
    }

    #[test]
    fn a_long_stay_is_suspected_told_and_ended() {
        let found = events(std::iter::repeat_n(7, 50).chain([0]));
        let counted = 49 * TICK;
        assert_eq!(
            found,
            [Event::Suspected, Event::Beyond, Event::Ended { counted }]
        );
    }

    #[test]
    fn tasks_that_take_turns_are_never_suspected() {
        assert_eq!(events((0..1000).map(|n| n % 3)), []);
        assert_eq!(events(std::iter::repeat_n(0, 1000)), []);
    }

    #[test]
    fn a_task_that_was_left_meanwhile_begins_anew() {
        let mut stay = Stay::default();
        let mut beyond = 0;
        for n in 0..1000 {
            let event = stay.look(7, TICK, n % 10 != 9, THRESHOLD);
            beyond += usize::from(event == Event::Beyond);
        }
        assert_eq!(beyond, 0);
    }
}
