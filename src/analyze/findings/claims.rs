//! Which live bytes are explained: by context, because every fact of a walk can be told by it.

use std::collections::HashMap;

use crate::profile::{ContextId, Walk};

/// Bytes by context.
#[derive(Clone, Debug, Default)]
pub struct Claims(pub HashMap<ContextId, u64>);

impl Claims {
    pub fn of(parts: impl IntoIterator<Item = (ContextId, u64)>) -> Claims {
        let mut claims = Claims::default();
        for (context, bytes) in parts {
            *claims.0.entry(context).or_default() += bytes;
        }
        claims
    }

    pub fn bytes(&self) -> u64 {
        self.0.values().sum()
    }
}

/// What of each context's live bytes nobody has explained yet.
pub struct Ledger {
    free: HashMap<ContextId, u64>,
}

impl Ledger {
    pub fn new(walk: &Walk) -> Ledger {
        Ledger {
            free: (walk.contexts.iter())
                .map(|(context, bytes, _)| (*context, *bytes))
                .collect(),
        }
    }

    /// Of what the context has.
    pub fn free(&self, context: ContextId) -> u64 {
        self.free.get(&context).copied().unwrap_or(0)
    }

    /// Is most of it explained? Never true of what is not on the heap.
    pub fn is_explained(&self, claims: &Claims) -> bool {
        let free = claims
            .0
            .iter()
            .map(|(at, bytes)| self.free(*at).min(*bytes));
        free.sum::<u64>() * 2 < claims.bytes()
    }

    pub fn explain(&mut self, claims: &Claims) {
        for (context, bytes) in &claims.0 {
            if let Some(free) = self.free.get_mut(context) {
                *free = free.saturating_sub(*bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_explained_once_is_not_explained_again() {
        let walk = Walk {
            contexts: vec![(ContextId(1), 100, 1), (ContextId(2), 100, 1)],
            ..Walk::default()
        };
        let mut ledger = Ledger::new(&walk);
        ledger.explain(&Claims::of([(ContextId(1), 60)]));
        assert_eq!(ledger.free(ContextId(1)), 40);
        assert!(ledger.is_explained(&Claims::of([(ContextId(1), 100)])));
        assert!(!ledger.is_explained(&Claims::of([(ContextId(1), 60), (ContextId(2), 60)])));
        assert!(!ledger.is_explained(&Claims::default()));
    }
}
