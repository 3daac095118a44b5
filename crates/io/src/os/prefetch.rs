//! A hint to the processor: bytes that will be read soon.
//!
//! A caller that looks up many keys in a table larger than the caches thus waits for memory once for all of them
//! instead of once for each. Invariant: a hint changes nothing but time; where a processor has none, nothing
//! happens.

/// Loads the cache line where `items[at]` begins, without waiting for it. Nothing happens beyond the end.
#[inline]
pub fn prefetch<T>(items: &[T], at: usize) {
    let Some(item) = items.get(at) else {
        return;
    };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it reads nothing that the program could see; the place is within
    // `items`.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(item).cast::<i8>(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn hints_are_harmless_anywhere() {
        let bytes = [1u8; 100];
        (0..200).for_each(|at| prefetch(&bytes, at));
        prefetch::<u8>(&[], 0);
        assert_eq!(bytes, [1; 100]);
    }
}
