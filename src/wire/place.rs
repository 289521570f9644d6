//! Places in the recording: an extent and an offset in it, the same number in both processes.
//!
//! The two processes attach the extents at different addresses, so a pointer means nothing to the
//! other side. Whoever can turn a place into an address implements [`ExtentMap`].

/// An offset in an extent. Zero is "nowhere": offset 0 of extent 0 holds the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Place(pub u64);

const OFFSET_BITS: u32 = 48;

impl Place {
    pub const NOWHERE: Place = Place(0);

    pub const fn new(extent: usize, offset: u64) -> Place {
        Place(((extent as u64) << OFFSET_BITS) | offset)
    }

    pub const fn extent(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    pub const fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize
    }

    pub const fn is_nowhere(self) -> bool {
        self.0 == 0
    }
}

/// Where this process has attached the extents.
pub trait ExtentMap {
    /// The address of the extent's first byte, null where it is not attached, and its size.
    fn extent(&self, index: usize) -> (*mut u8, usize);

    /// The address of `bytes` bytes at `place`, or null if they are not within an attached
    /// extent: a recording that was damaged must not send its reader astray.
    fn address(&self, place: Place, bytes: usize) -> *mut u8 {
        let (base, size) = self.extent(place.extent());
        let end = place.offset().checked_add(bytes);
        if base.is_null() || place.is_nowhere() || end.is_none_or(|end| end > size) {
            return std::ptr::null_mut();
        }
        base.wrapping_add(place.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_parts() {
        let place = Place::new(17, 0x1234_5678_9abc);
        assert_eq!((place.extent(), place.offset()), (17, 0x1234_5678_9abc));
        assert!(Place::new(0, 0).is_nowhere());
    }
}
