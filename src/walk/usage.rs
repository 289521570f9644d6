//! How much of a large block is in use, as its owner counts it.
//!
//! Bytes that were never written, or are zero, tell of buffers that nobody has used yet. A buffer
//! that was full once and is empty now is neither; but its owner knows. Around the pointer to a
//! block stand the numbers of the collection that it belongs to: capacity and length of a `Vec`,
//! the mask and the count of a hash table, the length of a `Bytes`. Two small numbers beside a
//! pointer prove nothing, so a number counts only if it fits the size of the block exactly: a
//! capacity must fill it, a table must end where it ends.
//!
//! A slice that is all that keeps a large block is told from a collection: a `Bytes` has an owner
//! elsewhere, and only if every pointer to the block is part of one is its length what is used.

use std::collections::HashMap;
use std::ops::Range;

use super::heap::Heap;
use super::image::Memory;
use super::scan::LARGE;

/// Pointers to one block that are remembered. A block with more is not called pinned.
const MOST_REFERENCES: usize = 8;

/// Elements of a collection are at most so large: beyond that, any small number would divide the
/// size of a block.
const LARGEST_ELEMENT: u64 = 1024;

/// Fewer say nothing about a block's size.
const LEAST_CAPACITY: u64 = 4;

/// Functions that a `Bytes` has in every version: to clone and to drop, at least.
const FUNCTIONS: u64 = 2;

/// Places of pointers to large blocks.
#[derive(Debug, Default)]
pub(super) struct References {
    /// By block: addresses of words that point into it.
    places: HashMap<u32, Vec<u64>>,
}

impl References {
    /// A word at this address points into the block.
    #[inline]
    pub(super) fn add(&mut self, block: u32, size: u64, place: u64) {
        if size >= LARGE {
            let places = self.places.entry(block).or_default();
            if places.len() <= MOST_REFERENCES {
                places.push(place);
            }
        }
    }
}

/// What the owner of a block says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Usage {
    /// So many bytes hold elements.
    Filled(u64),
    /// Slices keep it, which together use so many bytes.
    Sliced(u64),
}

pub(super) struct Reader<'a, M> {
    pub(super) heap: &'a Heap,
    pub(super) memory: &'a M,
    /// Is there code at this address?
    pub(super) is_code: &'a dyn Fn(u64) -> bool,
}

impl<M: Memory> Reader<'_, M> {
    /// Of each large block whose owner tells: how much is in use.
    pub(super) fn read(&self, references: &References) -> HashMap<u32, Usage> {
        let usage = |(&block, places): (&u32, &Vec<u64>)| Some((block, self.of(block, places)?));
        references.places.iter().filter_map(usage).collect()
    }

    fn of(&self, block: u32, places: &[u64]) -> Option<Usage> {
        let filled = places
            .iter()
            .filter_map(|place| self.filled(block, *place))
            .max();
        if let Some(bytes) = filled {
            return Some(Usage::Filled(bytes));
        }
        if places.len() > MOST_REFERENCES {
            return None;
        }
        let mut used: Vec<Range<u64>> = Vec::new();
        for &place in places {
            if !self.is_buffer_of_slices(block, place) {
                used.push(self.slice(block, place)?);
            }
        }
        used.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        let bytes = used.iter().map(|range| {
            let new = range.end.saturating_sub(range.start.max(end));
            end = end.max(range.end);
            new
        });
        let bytes = bytes.sum();
        (!used.is_empty()).then_some(Usage::Sliced(bytes))
    }

    /// Bytes in use by the collection whose pointer this is.
    fn filled(&self, block: u32, place: u64) -> Option<u64> {
        let block = self.heap.blocks[block as usize];
        let word = |n: i64| self.memory.word(place.wrapping_add_signed(n * 8));
        let offset = word(0).wrapping_sub(block.address);
        if offset == 0
            && let Some(bytes) =
                vector(block.size, word(-1), word(1), self.beyond(word(2), word(3)))
        {
            return Some(bytes);
        }
        table(block.size, offset, word(1), word(2), word(3)).or_else(|| {
            // A pointer with a `Layout` beside it looks the same up to here.
            let is_growing = self.is_kind_of_growing_bytes(word(3));
            growing_bytes(block.size, offset, word(1), word(2)).filter(|_| is_growing)
        })
    }

    /// The last word of a `BytesMut`: a tag while it owns its block alone, else the block of what
    /// it shares it with.
    fn is_kind_of_growing_bytes(&self, data: u64) -> bool {
        let blocks = &self.heap.blocks;
        let shared = || blocks.binary_search_by_key(&data, |block| block.address);
        data & 1 == 1 || shared().is_ok()
    }

    /// The number behind a length, unless it is the capacity of the next vector in an array.
    fn beyond(&self, number: u64, next: u64) -> Option<u64> {
        let blocks = &self.heap.blocks;
        let at = blocks
            .binary_search_by_key(&next, |block| block.address)
            .ok();
        let is_next = at.is_some_and(|at| number != 0 && blocks[at].size.is_multiple_of(number));
        (!is_next).then_some(number)
    }

    /// The part of the block that a `Bytes` shows: pointer, length, owner, table of functions. The
    /// functions tell it from any other structure with a pointer, a number and a static in it.
    fn slice(&self, block: u32, place: u64) -> Option<Range<u64>> {
        let block = self.heap.blocks[block as usize];
        let word = |n: u64| self.memory.word(place + n * 8);
        let (start, len) = (word(0).wrapping_sub(block.address), word(1));
        let inside = start <= block.size && len <= block.size - start;
        let table = word(3);
        let is_function = |n: u64| (self.is_code)(self.memory.word(table.wrapping_add(n * 8)));
        let has_table = table.is_multiple_of(8) && table != 0 && (0..FUNCTIONS).all(is_function);
        (inside && has_table).then_some(start..start + len)
    }

    /// What owns the block on behalf of slices: its start, its size, and how many there are; or
    /// the word of a slice that owns it alone, with a tag.
    fn is_buffer_of_slices(&self, block: u32, place: u64) -> bool {
        const MOST_OWNERS: u64 = 1 << 32;
        let block = self.heap.blocks[block as usize];
        let word = |n: u64| self.memory.word(place + n * 8);
        let tagged = word(0) == block.address | 1;
        let counted = word(0) == block.address
            && word(1) == block.size
            && (1..MOST_OWNERS).contains(&word(2));
        tagged || counted
    }
}

/// `Vec`, `String`: capacity, pointer, length. A `VecDeque` has where it begins before its length:
/// the larger of both counts.
fn vector(size: u64, capacity: u64, len: u64, beyond: Option<u64>) -> Option<u64> {
    if capacity < LEAST_CAPACITY || !size.is_multiple_of(capacity) || len > capacity {
        return None;
    }
    let element = size / capacity;
    let len = len.max(beyond.filter(|beyond| *beyond <= capacity).unwrap_or(0));
    (element <= LARGEST_ELEMENT).then_some(len * element)
}

/// A table of hashbrown: pointer to the control bytes, which follow the slots, mask of the slots,
/// room left, elements.
fn table(size: u64, offset: u64, mask: u64, left: u64, elements: u64) -> Option<u64> {
    const GROUP: u64 = 16;
    let slots = mask.checked_add(1)?;
    let ends = offset.checked_add(slots)?.checked_add(GROUP)? == size;
    if !slots.is_power_of_two() || slots < LEAST_CAPACITY || !ends {
        return None;
    }
    let most = slots / 8 * 7;
    let counts = elements.checked_add(left)? <= most.max(slots - 1);
    counts.then(|| elements * (offset / slots) + slots + GROUP)
}

/// `BytesMut`: pointer, length, capacity from the pointer on.
fn growing_bytes(size: u64, offset: u64, len: u64, capacity: u64) -> Option<u64> {
    let fills = capacity >= LEAST_CAPACITY && offset.checked_add(capacity)? == size;
    (fills && len <= capacity).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::super::heap::Block;
    use super::super::image::Sketch;
    use super::*;

    const BLOCK: u64 = 0x70_0000;
    const SIZE: u64 = 64 << 10;
    const TABLE: u64 = 0x50_0000;
    const CODE: Range<u64> = 0x40_0000..0x41_0000;

    /// Usage of the block where these words stand around; those at `places` are pointers to it.
    fn usage(size: u64, words: &[u64], places: &[usize]) -> Option<Usage> {
        let mut sketch = Sketch::default();
        sketch.put(0x1000, words);
        let block = Block {
            address: BLOCK,
            size,
            ..Block::default()
        };
        let heap = Heap {
            blocks: vec![block],
            ..Heap::default()
        };
        sketch.put(TABLE, &[CODE.start, CODE.start + 64]);
        let reader = Reader {
            heap: &heap,
            memory: &sketch,
            is_code: &|at| CODE.contains(&at),
        };
        let mut references = References::default();
        for at in places {
            references.add(0, size, 0x1000 + *at as u64 * 8);
        }
        reader.read(&references).get(&0).copied()
    }

    #[test]
    fn a_vector_tells_its_length() {
        let far = 1 << 40;
        assert_eq!(
            usage(SIZE, &[SIZE, BLOCK, 0, far], &[1]),
            Some(Usage::Filled(0))
        );
        assert_eq!(
            usage(SIZE, &[SIZE / 8, BLOCK, 10, far], &[1]),
            Some(Usage::Filled(80))
        );
        // The next of an array of vectors.
        let array = [SIZE, BLOCK, 5, SIZE, BLOCK];
        assert_eq!(usage(SIZE, &array, &[1]), Some(Usage::Filled(5)));
        // A `VecDeque` that begins at 8,000 and has 3 elements.
        assert_eq!(
            usage(SIZE, &[8192, BLOCK, 8000, 3], &[1]),
            Some(Usage::Filled(64_000))
        );
    }

    #[test]
    fn a_boxed_slice_beside_other_numbers_tells_nothing() {
        assert_eq!(usage(SIZE, &[0, BLOCK, SIZE / 8, 3], &[1]), None);
        assert_eq!(usage(SIZE, &[3, BLOCK, SIZE, 1 << 40], &[1]), None);
        assert_eq!(usage(SIZE, &[2, BLOCK, 1, 1 << 40], &[1]), None);
    }

    #[test]
    fn a_table_tells_its_elements() {
        let (slots, element) = (1024, 48);
        let offset = slots * element;
        let size = offset + slots + 16;
        let words = [BLOCK + offset, slots - 1, 800, 10];
        assert_eq!(
            usage(size, &words, &[0]),
            Some(Usage::Filled(480 + slots + 16))
        );
        assert_eq!(usage(size + 8, &words, &[0]), None);
    }

    #[test]
    fn a_slice_that_keeps_a_block_tells_what_it_shows() {
        let shared = 0x9000;
        // Two slices of 20 and 30 bytes, and their common owner.
        let words = [
            BLOCK + 100,
            20,
            shared,
            TABLE,
            BLOCK + 110,
            30,
            shared,
            TABLE,
            BLOCK,
            SIZE,
            2,
            0,
        ];
        assert_eq!(usage(SIZE, &words, &[0, 4, 8]), Some(Usage::Sliced(40)));
        // Somebody else points to it, too.
        let mut more = words.to_vec();
        more.extend([BLOCK, 7, 7, 7]);
        assert_eq!(usage(SIZE, &more, &[0, 4, 8, 12]), None);
    }

    #[test]
    fn a_pointer_beside_a_number_and_a_static_is_no_slice() {
        // The first of the static's words may be anything but functions.
        let data = 0x60_0000;
        assert_eq!(usage(SIZE, &[BLOCK, 64, SIZE, data], &[0]), None);
        assert_eq!(usage(SIZE, &[BLOCK, 64, SIZE, 0], &[0]), None);
        assert_eq!(usage(SIZE, &[BLOCK, 64, SIZE, TABLE + 8], &[0]), None);
    }
}
