//! What a process is told before its own code runs: found out from its executable.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::profile::recording::Configuration;
use crate::profile::target::{self, Target};

/// What is known of an executable.
pub struct About {
    pub configuration: Configuration,
    pub task_ids: &'static str,
    pub warnings: Vec<String>,
}

/// Executables that were looked at. Looking takes a while for a large one: each once.
pub struct Known {
    walks: bool,
    about: HashMap<PathBuf, About>,
}

impl Known {
    pub fn new(walks: bool) -> Known {
        Known {
            walks,
            about: HashMap::new(),
        }
    }

    pub fn add(&mut self, exe: &Path, target: Target) {
        let about = describe(target, self.walks);
        self.about.insert(exe.to_owned(), about);
    }

    /// What is known of this executable; looks at it if it is new. One that can't be read is
    /// recorded without task ids.
    pub fn about(&mut self, exe: &Path) -> &About {
        if !self.about.contains_key(exe) {
            let about = match target::inspect(exe) {
                Ok(target) => describe(target, self.walks),
                Err(error) => About {
                    configuration: Configuration {
                        walks: self.walks,
                        ..Default::default()
                    },
                    task_ids: "none",
                    warnings: vec![format!("{}: {error}", exe.display())],
                },
            };
            self.about.insert(exe.to_owned(), about);
        }
        &self.about[exe]
    }
}

fn describe(target: Target, walks: bool) -> About {
    let task_ids: Vec<i64> = target
        .task_ids
        .iter()
        .filter_map(|place| place.task_id)
        .collect();
    let unknown = target
        .task_ids
        .iter()
        .filter(|place| place.task_id.is_none());
    let configuration = Configuration {
        contexts: unknown
            .map(|place| (place.context, place.context_words))
            .collect(),
        init_ranges: target.init_ranges.clone(),
        walks,
        task_ids,
        ..Configuration::default()
    };
    let mut warnings = Vec::new();
    if !target.has_symtab {
        warnings.push(
            "the program is stripped: functions and tasks have no names. Build it with \
             `strip = false` in [profile.release]"
                .to_owned(),
        );
    }
    About {
        configuration,
        task_ids: target.task_id_method(),
        warnings,
    }
}
