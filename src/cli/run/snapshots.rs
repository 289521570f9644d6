//! Answers for those who ask for a profile while the program runs.
//!
//! The look is started from the loop that starts all looks, so that it never meets another; naming
//! and writing happen on a thread of their own, while the program goes on.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use super::asked::{Answer, Asked};
use super::walker::{Knowledge, Seen, Walker};
use super::watch::add_walks;
use crate::profile::encode;
use crate::profile::recording::{Facts, Recorded, collect_from};

/// Those who wait for a profile of one process.
pub struct Snapshots {
    asked: Option<Asked>,
    /// Nobody may stop the process.
    never: bool,
    waiting: Vec<Answer>,
}

impl Snapshots {
    /// Without the name, which somebody else has, nobody can ask.
    pub fn of(pid: i32, walks: bool) -> Snapshots {
        Snapshots {
            asked: Asked::listen(pid).ok(),
            never: !walks,
            waiting: Vec::new(),
        }
    }

    /// A look for those who have asked, if one can be made now.
    pub fn look(&mut self, walker: &mut Walker) -> Option<(Vec<Answer>, Receiver<Seen>)> {
        let fresh = self.asked.as_ref().and_then(Asked::next);
        self.waiting.extend(fresh);
        if self.never {
            for answer in self.waiting.drain(..) {
                answer.refuse(
                    "the program is recorded with --no-walk or --sample, so it is not looked at",
                );
            }
        }
        if self.waiting.is_empty() {
            return None;
        }
        let seen = walker.snapshot()?;
        Some((std::mem::take(&mut self.waiting), seen))
    }
}

/// Waits for the look, makes the profile and hands it out.
pub fn answer(
    answers: Vec<Answer>,
    seen: Receiver<Seen>,
    recorded: Arc<Recorded>,
    mut facts: Facts,
    knowledge: Arc<Mutex<Knowledge>>,
) {
    let work = move || {
        let profile = match seen.recv() {
            Ok(Ok((frozen, walks))) => {
                add_walks(&mut facts, walks);
                let mut knowledge = knowledge.lock().unwrap_or_else(PoisonError::into_inner);
                let namer = &mut knowledge.namer;
                let profile = collect_from(&recorded, frozen, facts, namer, &|_, _| {});
                encode(&profile).map_err(|error| error.to_string())
            }
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("the walker failed; the program went on".to_owned()),
        };
        for answer in answers {
            match &profile {
                Ok(bytes) => answer.profile(bytes),
                Err(reason) => answer.refuse(reason),
            }
        }
    };
    // Without a thread those who ask are told that we went away.
    let _ = std::thread::Builder::new()
        .name("taskheap-answer".to_owned())
        .spawn(work);
}
