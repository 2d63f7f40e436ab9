//! Handles: numbers that look like pointers, and the tables that they are looked up in.
//!
//! ```text
//!   handle   63      56 55        32 31                0
//!           │  kind    │ generation │ slot             │     never dereferenced
//!                 └────────┬────────┘    │
//!                       the tag          ▼
//!   table of the kind     slot:  handle (0: free) │ uses │ object
//! ```
//!
//! C programs pass NULL, handles of another kind, and handles that were freed. A pointer to the object would be read before
//! any of these can be noticed. A slot of a table is never unmapped, so the handle that it has can always be compared with
//! the one that is looked up: one comparison finds every wrong handle. A generation repeats after 2^24 uses of a slot.
//!
//! The first slots of a table are static: most programs have no more objects of a kind, and finding one of these costs an
//! addition. Slot 0 never has an object, and its number of uses is 0: NULL, which equals the handle of a free slot, fails
//! there.
//!
//! Two ways lead to an object. A *shared* object counts its users (two atomic operations for each call); a free that
//! coincides with a call takes effect when the call returns. An *exclusive* object belongs to one thread at a time, and a
//! call only marks it as used (two plain stores), which also finds most calls that overlap by mistake.

use std::cell::{RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;

use crate::fork::{Forked, FreeSlots, register};
use crate::status::{Failure, rb_status};

/// The slots of the first chunk, which is static; every further chunk has twice as many as the one before it.
const FIRST_CHUNK: u32 = 64;
/// Enough further chunks for 2^30 slots.
const CHUNKS: usize = 23;
/// In the place of its handle: an object of the process that this one was forked from. No handle is equal.
const OF_PARENT: usize = usize::MAX;
const TAG_SHIFT: u32 = 32;
const GENERATIONS: u32 = 1 << 24;
/// The free slots that a thread keeps for itself.
const MAX_SPARES: usize = 64;

/// A kind of objects that C programs have handles of.
pub(crate) trait Kind: Sized + 'static {
    /// The type that the handle is a pointer to, in C.
    type Opaque;
    /// The number of the kind in the tag: 1 to 127.
    const NUMBER: u32;
    /// The name in error texts.
    const NAME: &'static str;
    /// What is beside the object in a slot, for any thread, also while another one uses the object.
    type Beside: Sync;
    /// Its first value.
    const BESIDE: Self::Beside;
    /// The table of the kind.
    fn table() -> &'static Table<Self>;
    /// The free slots of this thread.
    fn spares() -> &'static LocalKey<RefCell<Spares<Self>>>;
}

/// One object, or none. Objects of different threads share no cache line.
#[repr(align(64))]
struct Slot<T: Kind> {
    /// The handle of the object; 0 if there is none.
    handle: AtomicUsize,
    /// Shared: 1 and the number of calls that use the object. Exclusive: 2 while a call uses the object, and otherwise 1.
    uses: AtomicU32,
    /// The number of objects that the slot has had.
    generation: AtomicU32,
    beside: T::Beside,
    object: UnsafeCell<MaybeUninit<T>>,
}

/// All objects of a kind.
pub(crate) struct Table<T: Kind> {
    first: [Slot<T>; FIRST_CHUNK as usize],
    further: [AtomicPtr<Slot<T>>; CHUNKS],
    free: FreeSlots,
    /// The number of slots that exist. Written under the lock.
    slots: AtomicU32,
}

// SAFETY: the objects are reached through the tables by any thread, and `Kind`s are handles that are Send and Sync, or that
// one thread uses at a time (see `exclusive`).
unsafe impl<T: Kind> Sync for Table<T> {}

/// Free slots that one thread takes and returns without the lock of the table.
pub(crate) struct Spares<T: Kind> {
    slots: Vec<u32>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Kind> Spares<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), kind: PhantomData }
    }
}

impl<T: Kind> Drop for Spares<T> {
    fn drop(&mut self) {
        T::table().lock().append(&mut self.slots);
    }
}

/// The chunk and the place in the chunk of a slot.
fn place(slot: u32) -> (usize, usize) {
    let chunk = (slot / FIRST_CHUNK + 1).ilog2();
    let first = FIRST_CHUNK * ((1 << chunk) - 1);
    (chunk as usize, (slot - first) as usize)
}

fn tag_of(kind: u32, generation: u32) -> u32 {
    (kind << 24) | (generation % GENERATIONS)
}

impl<T: Kind> Table<T> {
    pub(crate) const fn new() -> Self {
        Self {
            first: [const { Slot::new() }; FIRST_CHUNK as usize],
            further: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            free: Mutex::new(Vec::new()),
            slots: AtomicU32::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of this number, if there is one.
    #[inline(always)]
    fn slot(&self, number: u32) -> Option<&Slot<T>> {
        self.first.get(number as usize).or_else(|| self.further_slot(number))
    }

    #[cold]
    #[inline(never)]
    fn further_slot(&self, number: u32) -> Option<&Slot<T>> {
        // Pairs with the Release in `take_free`.
        if number >= self.slots.load(Ordering::Acquire) {
            return None;
        }
        let (chunk, at) = place(number);
        // SAFETY: `slots` counts a slot only after its chunk was stored, and chunks are never freed.
        Some(unsafe { &*self.further[chunk - 1].load(Ordering::Relaxed).add(at) })
    }

    /// A free slot, for which another chunk may be allocated. None if there are no more numbers.
    fn take_free(&self) -> Option<u32> {
        let mut free = self.lock();
        if let Some(slot) = free.pop() {
            return Some(slot);
        }
        let first = self.slots.load(Ordering::Relaxed);
        let (chunk, _) = place(first);
        let size = FIRST_CHUNK << chunk;
        if let Some(further) = chunk.checked_sub(1) {
            let place = self.further.get(further)?;
            let slots: Vec<Slot<T>> = (0..size).map(|_| Slot::new()).collect();
            place.store(Box::leak(slots.into_boxed_slice()).as_mut_ptr(), Ordering::Relaxed);
        }
        // Pairs with the Acquire in `further_slot`: a thread that sees the number sees the chunk.
        self.slots.store(first + size, Ordering::Release);
        // Slot 0 never has an object.
        free.extend((first.max(1)..first + size).rev());
        free.pop()
    }
}

impl<T: Kind> Forked for Table<T> {
    fn free_slots(&self) -> &FreeSlots {
        &self.free
    }

    fn abandon(&self) {
        for slot in (1..self.slots.load(Ordering::Acquire)).filter_map(|number| self.slot(number)) {
            if slot.handle.load(Ordering::Relaxed) != 0 {
                slot.handle.store(OF_PARENT, Ordering::Relaxed);
            }
        }
    }
}

impl<T: Kind> Slot<T> {
    const fn new() -> Self {
        Self {
            handle: AtomicUsize::new(0),
            uses: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            beside: T::BESIDE,
            object: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

/// Returns a slot to this thread's spares, or to the table.
#[inline]
fn give_back<T: Kind>(slot: u32) {
    let kept = T::spares().try_with(|spares| {
        let mut spares = spares.borrow_mut();
        let room = spares.slots.len() < MAX_SPARES;
        if room {
            spares.slots.push(slot);
        }
        room
    });
    // The thread may be about to end, and its spares gone.
    if !kept.unwrap_or(false) {
        T::table().lock().push(slot);
    }
}

/// Makes a handle of an object.
#[inline(always)]
pub(crate) fn insert<T: Kind>(object: T) -> Result<*mut T::Opaque, Failure> {
    insert_placed(object, None).map(|(handle, _)| handle)
}

/// Makes a handle of an object, in the reserved slot if that is free, and says where the object is for as long as the handle
/// is not freed.
#[inline(always)]
pub(crate) fn insert_placed<T: Kind>(
    object: T,
    reserve: Option<&mut Reserve<T>>,
) -> Result<(*mut T::Opaque, *mut T), Failure> {
    let reserved = reserve.and_then(Reserve::use_slot);
    let (number, slot) = if let Some(reserved) = reserved { reserved } else { free_slot::<T>()? };
    // SAFETY: a free slot has no object, and this thread alone has taken it.
    let place = unsafe { &raw mut *(*slot.object.get()).write(object) };
    let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
    slot.generation.store(generation, Ordering::Relaxed);
    let handle = (tag_of(T::NUMBER, generation) as usize) << TAG_SHIFT | number as usize;
    slot.uses.store(1, Ordering::Relaxed);
    // Pairs with the Acquire loads of the handle: a thread that finds the handle finds the object.
    slot.handle.store(handle, Ordering::Release);
    Ok((std::ptr::without_provenance_mut(handle), place))
}

/// A free slot of this thread's spares or of the table.
#[inline]
fn free_slot<T: Kind>() -> Result<(u32, &'static Slot<T>), Failure> {
    let table = T::table();
    let spare = T::spares().try_with(|spares| spares.borrow_mut().slots.pop()).ok().flatten();
    let number = spare.or_else(|| more_slots(table));
    let found = number.and_then(|number| Some((number, table.slot(number)?)));
    found.ok_or_else(|| Failure::new(rb_status::RB_ERR_TOO_MANY, "too many handles exist"))
}

/// A free slot of the table, whose lock may be taken here for the first time.
#[cold]
fn more_slots<T: Kind>(table: &'static Table<T>) -> Option<u32> {
    register(T::NUMBER, table);
    table.take_free()
}

/// The slot that an exclusive object used last for another object that it makes and takes back, again and again: the next one
/// needs neither the spares of the thread nor a search.
pub(crate) struct Reserve<T: Kind> {
    slot: Option<(u32, &'static Slot<T>)>,
    /// Whether the slot is free, and nobody else's.
    free: bool,
}

// SAFETY: the slot is used through `&mut Reserve`, and only its atomic parts unless it is free. An object in it may be taken
// by any thread, as `T` is Send.
unsafe impl<T: Kind + Send> Send for Reserve<T> {}

impl<T: Kind> Reserve<T> {
    pub(crate) const fn new() -> Self {
        Self { slot: None, free: false }
    }

    #[inline]
    fn use_slot(&mut self) -> Option<(u32, &'static Slot<T>)> {
        if std::mem::take(&mut self.free) { self.slot } else { None }
    }

    /// Keeps a slot that became free, instead of the one before it.
    #[inline]
    fn keep(&mut self, number: u32, slot: &'static Slot<T>) {
        let before = self.use_slot();
        *self = Self { slot: Some((number, slot)), free: true };
        if let Some((before, _)) = before {
            give_back::<T>(before);
        }
    }
}

impl<T: Kind> Drop for Reserve<T> {
    fn drop(&mut self) {
        if let Some((number, _)) = self.use_slot() {
            give_back::<T>(number);
        }
    }
}

/// The slot of a handle, and its number.
#[inline(always)]
fn find<T: Kind>(handle: usize) -> Result<(&'static Slot<T>, u32), Failure> {
    let number = handle as u32;
    match T::table().slot(number) {
        Some(slot) if slot.handle.load(Ordering::Acquire) == handle => Ok((slot, number)),
        slot => Err(wrong::<T>(handle, slot)),
    }
}

/// What is beside the object of a handle, whoever uses the object.
pub(crate) fn beside<T: Kind>(handle: *const T::Opaque) -> Result<&'static T::Beside, Failure> {
    match handle.addr() {
        0 => Err(wrong::<T>(0, None)),
        handle => find::<T>(handle).map(|(slot, _)| &slot.beside),
    }
}

/// The failure of a call with an unusable handle.
#[cold]
fn wrong<T: Kind>(handle: usize, slot: Option<&Slot<T>>) -> Failure {
    let (tag, name) = ((handle >> TAG_SHIFT) as u32, T::NAME);
    match slot {
        _ if handle == 0 => Failure::of(rb_status::RB_ERR_NULL, format!("the {name} is NULL")),
        Some(slot) if tag >> 24 == T::NUMBER => {
            let last = tag_of(T::NUMBER, slot.generation.load(Ordering::Relaxed));
            match slot.handle.load(Ordering::Relaxed) {
                OF_PARENT if last == tag => {
                    let text = format!("the {name} belongs to the process that this one was forked from");
                    Failure::of(rb_status::RB_ERR_FORKED, text)
                }
                _ => Failure::of(rb_status::RB_ERR_FREED, format!("the {name} was freed")),
            }
        }
        _ => Failure::of(rb_status::RB_ERR_HANDLE, format!("the pointer is no handle of a {name}")),
    }
}

/// Why an exclusive object cannot be used.
#[cold]
fn busy<T: Kind>(handle: usize) -> Failure {
    if handle == 0 {
        return wrong::<T>(handle, None);
    }
    let text = format!("another call uses the {}, which one thread may use at a time", T::NAME);
    Failure::of(rb_status::RB_ERR_BUSY, text)
}

/// Drops the object of a slot that nobody can find or uses, and frees the slot.
#[cold]
fn end<T: Kind>(slot: &Slot<T>, number: u32) {
    // SAFETY: the handle is gone and the last use is over, so this is the only reference to the object.
    let object = unsafe { (*slot.object.get()).assume_init_read() };
    give_back::<T>(number);
    drop(object);
}

/// A shared object in use: it lives until this is dropped.
pub(crate) struct Shared<T: Kind> {
    slot: &'static Slot<T>,
    number: u32,
}

/// The object of a handle, for kinds that any number of threads may use.
#[inline(always)]
pub(crate) fn shared<T: Kind + Send + Sync>(handle: *const T::Opaque) -> Result<Shared<T>, Failure> {
    let handle = handle.addr();
    let (slot, number) = find::<T>(handle)?;
    let mut uses = slot.uses.load(Ordering::Relaxed);
    loop {
        if uses == 0 {
            return Err(wrong::<T>(handle, Some(slot)));
        }
        let more = slot.uses.compare_exchange_weak(uses, uses + 1, Ordering::Acquire, Ordering::Relaxed);
        match more {
            Ok(_) => break,
            Err(now) => uses = now,
        }
    }
    let found = Shared { slot, number };
    // Freed, and perhaps taken for another object, since `find`.
    if slot.handle.load(Ordering::Acquire) == handle {
        Ok(found)
    } else {
        Err(wrong::<T>(handle, Some(slot)))
    }
}

impl<T: Kind> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the use that this counts keeps the object alive, and nobody has it exclusively.
        unsafe { (*self.slot.object.get()).assume_init_ref() }
    }
}

impl<T: Kind> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        if self.slot.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
            end(self.slot, self.number);
        }
    }
}

/// Takes the handle away from the object in a slot. Of several calls at a time one succeeds.
#[inline]
fn retire<T: Kind>(slot: &Slot<T>, handle: usize) -> Result<(), Failure> {
    let gone = slot.handle.compare_exchange(handle, 0, Ordering::AcqRel, Ordering::Relaxed);
    gone.map(drop).map_err(|_| wrong::<T>(handle, Some(slot)))
}

/// Frees the handle of a shared object. The object is dropped here, or by the last call that uses it.
pub(crate) fn free_shared<T: Kind + Send + Sync>(handle: *const T::Opaque) -> Result<(), Failure> {
    let handle = handle.addr();
    let (slot, number) = find::<T>(handle)?;
    if handle == 0 {
        return Err(wrong::<T>(handle, None));
    }
    retire(slot, handle)?;
    // The use that `insert` counted.
    drop(Shared { slot, number });
    Ok(())
}

/// An exclusive object in use.
pub(crate) struct Exclusive<T: Kind> {
    slot: &'static Slot<T>,
}

/// The object of a handle, for kinds that one thread uses at a time. Fails if another call uses it, as far as that can be
/// seen without an atomic operation.
#[inline(always)]
pub(crate) fn exclusive<T: Kind + Send>(handle: *const T::Opaque) -> Result<Exclusive<T>, Failure> {
    let handle = handle.addr();
    let (slot, _) = find::<T>(handle)?;
    // Pairs with the Release of the call before, which another thread may have made.
    if slot.uses.load(Ordering::Acquire) != 1 {
        return Err(busy::<T>(handle));
    }
    slot.uses.store(2, Ordering::Relaxed);
    Ok(Exclusive { slot })
}

impl<T: Kind> Deref for Exclusive<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object is marked as used, and by the contract of the C API no other thread uses it.
        unsafe { (*self.slot.object.get()).assume_init_ref() }
    }
}

impl<T: Kind> DerefMut for Exclusive<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { (*self.slot.object.get()).assume_init_mut() }
    }
}

impl<T: Kind> Drop for Exclusive<T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.uses.store(1, Ordering::Release);
    }
}

/// Takes an exclusive object out of its handle, which is freed. Of several calls at a time one gets the object.
#[inline(always)]
pub(crate) fn take<T: Kind + Send>(handle: *const T::Opaque) -> Result<T, Failure> {
    let handle = handle.addr();
    let (slot, number) = find::<T>(handle)?;
    if slot.uses.load(Ordering::Acquire) != 1 {
        return Err(busy::<T>(handle));
    }
    // Fails if the object was freed since `find`.
    retire(slot, handle)?;
    // SAFETY: the handle is gone and no call uses the object, so this is the only reference to it.
    let object = unsafe { (*slot.object.get()).assume_init_read() };
    give_back::<T>(number);
    Ok(object)
}

/// As [`take`], and keeps the slot in reserve. Finds only with plain loads that no other call takes the object, as
/// [`exclusive`] does.
///
/// Returns where the object is until the reserve is used again. The caller reads it from there, once: returning the object
/// would move it several times.
#[inline(always)]
pub(crate) fn take_to<T: Kind + Send>(
    reserve: &mut Reserve<T>,
    handle: *const T::Opaque,
) -> Result<*const T, Failure> {
    let handle = handle.addr();
    let (slot, number) = find::<T>(handle)?;
    if slot.uses.load(Ordering::Acquire) != 1 {
        return Err(busy::<T>(handle));
    }
    slot.handle.store(0, Ordering::Release);
    reserve.keep(number, slot);
    Ok(slot.object.get().cast_const().cast())
}

/// Declares kinds: the opaque type of C, the type of the object, the number of the kind, its name in error texts, and what is beside it.
macro_rules! kinds {
    (@ $beside:ty, $first:expr) => {
        type Beside = $beside;
        #[allow(clippy::declare_interior_mutable_const, reason = "the first value of each slot")]
        const BESIDE: $beside = $first;
    };
    (@) => { $crate::table::kinds!(@ (), ()); };
    ($($opaque:ident => $object:ty, $number:literal, $name:literal $(, $beside:ty = $first:expr)?;)*) => {
        $(impl $crate::table::Kind for $object {
            type Opaque = $opaque;
            const NUMBER: u32 = $number;
            const NAME: &'static str = $name;
            $crate::table::kinds!(@ $($beside, $first)?);

            fn table() -> &'static $crate::table::Table<Self> {
                static TABLE: $crate::table::Table<$object> = $crate::table::Table::new();
                &TABLE
            }

            fn spares() -> &'static std::thread::LocalKey<std::cell::RefCell<$crate::table::Spares<Self>>> {
                thread_local! {
                    static SPARES: std::cell::RefCell<$crate::table::Spares<$object>> =
                        const { std::cell::RefCell::new($crate::table::Spares::new()) };
                }
                &SPARES
            }
        })*
    };
}
pub(crate) use kinds;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Number(u64, #[expect(dead_code, reason = "counts objects")] Arc<()>);
    struct Other;
    struct Opaque;
    struct OtherOpaque;
    kinds! {
        Opaque => Number, 126, "number";
        OtherOpaque => Other, 127, "other";
    }

    fn status<T>(result: Result<T, Failure>) -> rb_status {
        result.err().expect("it fails").status()
    }

    #[test]
    fn places_follow_each_other() {
        let mut last = (0, usize::MAX);
        for slot in 0..10_000 {
            let (chunk, at) = place(slot);
            assert!((chunk == last.0 && at == last.1.wrapping_add(1)) || (chunk == last.0 + 1 && at == 0));
            assert!(at < (FIRST_CHUNK << chunk) as usize);
            last = (chunk, at);
        }
    }

    #[test]
    fn wrong_handles_are_found() {
        let alive = Arc::new(());
        let handle = insert(Number(7, alive.clone())).unwrap();
        let other = insert(Other).unwrap();
        assert_eq!(shared::<Number>(handle).unwrap().0, 7);
        assert_eq!(status(shared::<Number>(std::ptr::null())), rb_status::RB_ERR_NULL);
        assert_eq!(status(shared::<Number>(other.cast())), rb_status::RB_ERR_HANDLE);
        let local = Opaque;
        assert_eq!(status(shared::<Number>(&raw const local)), rb_status::RB_ERR_HANDLE);
        let used = shared::<Number>(handle).unwrap();
        free_shared::<Number>(handle).unwrap();
        assert_eq!(Arc::strong_count(&alive), 2, "a call still uses it");
        assert_eq!(status(free_shared::<Number>(handle)), rb_status::RB_ERR_FREED);
        assert_eq!(status(shared::<Number>(handle)), rb_status::RB_ERR_FREED);
        drop(used);
        assert_eq!(Arc::strong_count(&alive), 1);
        let next = insert(Number(8, alive)).unwrap();
        assert_eq!(next.addr() as u32, handle.addr() as u32, "the slot is used again");
        assert_eq!(status(shared::<Number>(handle)), rb_status::RB_ERR_FREED);
        free_shared::<Number>(next).unwrap();
        take::<Other>(other).unwrap();
    }

    #[test]
    fn an_exclusive_object_is_used_once_at_a_time() {
        let handle = insert(Number(7, Arc::new(()))).unwrap();
        let mut used = exclusive::<Number>(handle).unwrap();
        assert_eq!(status(exclusive::<Number>(handle)), rb_status::RB_ERR_BUSY);
        assert_eq!(status(take::<Number>(handle)), rb_status::RB_ERR_BUSY);
        used.0 = 9;
        drop(used);
        assert_eq!(take::<Number>(handle).unwrap().0, 9);
        assert_eq!(status(take::<Number>(handle)), rb_status::RB_ERR_FREED);
    }

    #[test]
    fn a_reserved_slot_is_used_again() {
        fn take_number(reserve: &mut Reserve<Number>, handle: *const Opaque) -> Result<Number, Failure> {
            // SAFETY: the object is read once, before the reserve is used again.
            take_to(reserve, handle).map(|place| unsafe { place.read() })
        }
        let alive = Arc::new(());
        let mut reserve = Reserve::<Number>::new();
        let (first, _) = insert_placed(Number(1, alive.clone()), Some(&mut reserve)).unwrap();
        assert_eq!(status(take_number(&mut reserve, std::ptr::null())), rb_status::RB_ERR_NULL);
        assert_eq!(take_number(&mut reserve, first).unwrap().0, 1);
        assert_eq!(status(take_number(&mut reserve, first)), rb_status::RB_ERR_FREED);
        assert_eq!(status(take_number(&mut reserve, std::ptr::null())), rb_status::RB_ERR_NULL);
        let (second, _) = insert_placed(Number(2, alive.clone()), Some(&mut reserve)).unwrap();
        assert_eq!(first.addr() as u32, second.addr() as u32, "the slot is used again");
        assert_eq!(status(take_number(&mut reserve, first)), rb_status::RB_ERR_FREED);
        let (third, _) = insert_placed(Number(3, alive.clone()), Some(&mut reserve)).unwrap();
        assert_ne!(second.addr() as u32, third.addr() as u32, "the slot is not free");
        assert_eq!(take_number(&mut reserve, third).unwrap().0, 3);
        assert_eq!(take::<Number>(second).unwrap().0, 2, "an object can also be taken without the reserve");
        assert_eq!(status(take_number(&mut reserve, second)), rb_status::RB_ERR_FREED);
        let (last, _) = insert_placed(Number(4, alive.clone()), Some(&mut reserve)).unwrap();
        assert_eq!(
            last.addr() as u32,
            third.addr() as u32,
            "the slot that was taken back last is in reserve"
        );
        drop(reserve);
        assert_eq!(take::<Number>(last).unwrap().0, 4, "an object outlives the reserve");
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    /// Threads use, free and make handles of the same slots; every object is dropped once.
    #[test]
    fn frees_and_uses_race() {
        let alive = Arc::new(());
        for _ in 0..200 {
            let handle = insert(Number(1, alive.clone())).unwrap().expose_provenance();
            let use_it = |times: u32| {
                let handle = std::ptr::with_exposed_provenance::<Opaque>(handle);
                (0..times).filter(|_| shared::<Number>(handle).is_ok_and(|found| found.0 == 1)).count()
            };
            std::thread::scope(|scope| {
                scope.spawn(|| use_it(100));
                let freed: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(|| {
                            use_it(10);
                            free_shared::<Number>(std::ptr::with_exposed_provenance(handle)).is_ok()
                        })
                    })
                    .collect();
                let freed = freed.into_iter().filter_map(|thread| thread.join().ok()).filter(|freed| *freed);
                assert_eq!(freed.count(), 1);
            });
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
