//! What a process is told before its own code runs: found out from its executable.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::profile::patches::{self, name_of};
use crate::profile::recording::Configuration;
use crate::profile::target::{self, Target};
use crate::wire::{Allocator, PatchRole};

/// What is known of an executable.
pub struct About {
    pub configuration: Configuration,
    pub task_ids: &'static str,
    pub warnings: Vec<String>,
}

/// Executables that were looked at. Looking takes a while for a large one: each once.
pub struct Known {
    walks: bool,
    sample_bytes: u64,
    about: HashMap<PathBuf, About>,
}

impl Known {
    pub fn new(walks: bool, sample_bytes: u64) -> Known {
        Known {
            walks,
            sample_bytes,
            about: HashMap::new(),
        }
    }

    pub fn add(&mut self, exe: &Path, target: Target) {
        let mut about = describe(target, self.walks);
        about.configuration.sample_bytes = self.sample_bytes;
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
            let mut about = about;
            about.configuration.sample_bytes = self.sample_bytes;
            self.about.insert(exe.to_owned(), about);
        }
        &self.about[exe]
    }
}

fn describe(target: Target, walks: bool) -> About {
    let task_ids = target
        .task_ids
        .iter()
        .filter_map(|place| Some((place.task_id?, place.present)))
        .collect();
    let unknown = target
        .task_ids
        .iter()
        .filter(|place| place.task_id.is_none());
    let plan = patches::plan(&target);
    let mut warnings = allocator_warnings(&plan);
    let configuration = Configuration {
        patches: plan.patches,
        redirects: plan.redirects,
        mallctl: plan.mallctl,
        wrapper: plan.wrapper,
        contexts: unknown
            .map(|place| (place.context, place.context_words))
            .collect(),
        init_ranges: target.init_ranges.clone(),
        walks,
        task_ids,
        ..Configuration::default()
    };
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

/// What the program will allocate unseen.
fn allocator_warnings(plan: &patches::Plan) -> Vec<String> {
    let mut warnings: Vec<String> = plan
        .bypass
        .iter()
        .map(|bypass| bypass.to_string())
        .collect();
    for (name, reason) in &plan.unpatched {
        warnings.push(format!("calls of `{name}` are not recorded: {reason}"));
    }
    warnings
}

fn entries(planned: &Configuration) -> u32 {
    let roles = planned
        .patches
        .iter()
        .map(|patch| PatchRole::from_word(patch.role));
    roles
        .filter(|role| role.is_some_and(|role| !role.is_system()))
        .count() as u32
}

/// What the profiled process has not done of what it was told.
pub fn patch_warning(planned: &Configuration, made: u32, error: i32) -> Option<String> {
    let missing = entries(planned).saturating_sub(made);
    let first = planned.patches.first()?;
    let allocator = Allocator::from_word(first.allocator).map_or("its allocator", name_of);
    if error != 0 {
        let reason = std::io::Error::from_raw_os_error(error);
        return Some(format!(
            "{allocator}, which is linked into the program, is not recorded: {reason}"
        ));
    }
    (missing > 0).then(|| {
        format!("{missing} entry points of {allocator} are not recorded: the program changed while it started")
    })
}
