//! Asking for memory before it is needed.

/// Tells the processor that `place` will be needed soon; where it cannot be told, nothing.
#[inline]
#[cfg(target_arch = "x86_64")]
#[allow(
    unsafe_code,
    reason = "a batch of checks then costs half as much: cargo xtask bench keyed, check-many"
)]
pub(crate) fn prefetch<T>(place: &T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint. It reads nothing that the program could see, and cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
}

/// Tells the processor that `place` will be needed soon; where it cannot be told, nothing.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch<T>(_place: &T) {}
