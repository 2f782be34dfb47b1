-- The sliding window log: everything admitted in the last `period`, at most `depth` of it.
--
-- State: a string of packed doubles, of which only the parts are read and written that a call needs. First the head:
--   born       when it was first written: a receipt from before is worth nothing
--   forgotten  by when the entries that are no longer there had left: for a clock that is put back they may still count, so
--              nothing fits before that
--   base       the sum of all that is no longer there
--   skipped    how many entries at the front are no longer there
--   length     how many follow that are
-- and then the entries, oldest first: when, and the sum of everything logged up to it and with it. So the cost of any row of
-- entries is a difference of two sums, and the entry that matters is found by halving, however many there are.

-- The most that is logged is one less than 2^52, where sums begin again from zero: their differences do not notice.
local SUMS_END = 4503599627370496
-- The most entries. What comes on top of them is logged with the newest.
local MOST_ENTRIES = 10000
-- Bytes of the head and of an entry, and how many are read at first: the whole of a short log.
local HEAD, ENTRY, FIRST_READ = 40, 16, 1000

local function place_of(t, number)
  return HEAD + (t.skipped + number) * ENTRY
end

-- When the entry with this number was admitted, and the sum up to it. The first is number zero.
local function entry(t, number)
  local place = place_of(t, number)
  if place + ENTRY <= #t.raw then
    return struct.unpack('<dd', t.raw, place + 1)
  end
  return struct.unpack('<dd', redis.call('GETRANGE', t.key, place, place + ENTRY - 1))
end

local function between(sum, earlier)
  return (sum - earlier) % SUMS_END
end

-- The number of the first entry for which `holds(at, sum)`, as it does for all after it; `length` if there is none. It goes on by
-- steps twice as long each time and then halves the last one.
local function first_entry(t, holds)
  local low, high, step = 0, 0, 1
  while high < t.length and not holds(entry(t, high)) do
    low, high, step = high + 1, high + step, step * 2
  end
  high = math.min(high, t.length)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if holds(entry(t, middle)) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function sliding_log_read(t)
  t.raw = redis.call('GETRANGE', t.key, 0, FIRST_READ - 1)
  t.gone, t.total, t.used, t.forgotten, t.base, t.skipped, t.length, t.sum = 0, 0, 0, 0, 0, 0, 0, 0
  t.newest = now - t.period
  if #t.raw == 0 then
    return
  end
  t.known = true
  t.born, t.forgotten, t.base, t.skipped, t.length = struct.unpack('<ddddd', t.raw)
  if t.forgotten - now > leap then
    t.forgotten = now
  end
  t.sum = t.base
  if t.length == 0 then
    t.newest = math.max(now, t.forgotten) - t.period
    return
  end
  t.newest, t.sum = entry(t, t.length - 1)
  t.total = between(t.sum, t.base)
  t.used = t.total
  if t.newest - now > leap then -- everything counts as entered now
    t.raw = string.rep('\0', HEAD) .. struct.pack('<dd', now, t.total)
    t.newest, t.born, t.forgotten, t.base, t.sum, t.skipped, t.length, t.is_anew = now, now, 0, 0, t.total, 0, 1, true
    return
  end
  t.gone = first_entry(t, function(at)
    return now - at < t.period
  end)
  if t.gone > 0 then
    local _, gone = entry(t, t.gone - 1)
    t.used = between(t.sum, gone)
  end
end

-- Before this moment nothing fits.
local function edge(t)
  return math.max(t.newest, t.forgotten)
end

local function sliding_log_fits(t, size)
  return edge(t) <= now and t.used + size <= t.depth
end

local function write_entry(t, number, at, sum)
  redis.call('SETRANGE', t.key, place_of(t, number), struct.pack('<dd', at, sum))
  t.raw = ''
end

local function pack_head(t)
  return struct.pack('<ddddd', t.born, t.forgotten, t.base, t.skipped, t.length)
end

local function sliding_log_write(t)
  redis.call('SETRANGE', t.key, 0, pack_head(t))
  redis.call('PEXPIRE', t.key, expiry(edge(t) + t.period - now))
end

-- What has left the window goes when something else changes.
local function forget(t)
  if t.is_anew then
    return write_entry(t, 0, now, t.sum)
  end
  if t.gone > 0 then
    t.base = (t.sum - t.used) % SUMS_END
    t.skipped, t.length, t.total, t.gone = t.skipped + t.gone, t.length - t.gone, t.used, 0
    t.forgotten = math.max(now, t.forgotten)
  end
  if t.skipped > 32 + t.length / 4 then
    local kept = redis.call('GETRANGE', t.key, place_of(t, 0), place_of(t, t.length) - 1)
    t.skipped, t.raw = 0, ''
    redis.call('SET', t.key, pack_head(t) .. kept)
  end
end

local function sliding_log_take(t, size)
  forget(t)
  size = math.min(size, SUMS_END - 1 - t.total)
  local at = math.max(now, edge(t))
  t.total, t.used, t.sum = t.total + size, t.used + size, (t.sum + size) % SUMS_END
  if t.length == 0 or (t.newest < at and t.length < MOST_ENTRIES) then
    t.length = t.length + 1
  end
  t.newest = at
  write_entry(t, t.length - 1, at, t.sum)
  sliding_log_write(t)
end

-- When enough of the oldest have left for it to fit.
local function moment_with_room(t, size)
  local moment, excess = math.max(now, edge(t)), t.total + size - t.depth
  if excess <= 0 or t.length == 0 then
    return moment
  end
  local last = first_entry(t, function(_, sum)
    return between(sum, t.base) >= excess
  end)
  return math.max(moment, entry(t, math.min(last, t.length - 1)) + t.period)
end

-- For a clock that was put back there is nothing left, whatever is used.
local function sliding_log_tell(t, fits)
  return edge(t) <= now and t.used or math.max(t.used, t.depth), t.newest, fits and now or moment_with_room(t, t.cost)
end

local sliding_log = {
  read = sliding_log_read,
  fits = sliding_log_fits,
  take = sliding_log_take,
  tell = sliding_log_tell,
}

-- Only for changes.

sliding_log.write = sliding_log_write

function sliding_log.rest(t)
  return edge(t) <= now and math.max(t.depth - t.used, 0) or 0
end

-- The oldest goes first.
function sliding_log.lower(t, size)
  if t.used == 0 then
    return false
  end
  forget(t)
  size = math.min(size, t.used)
  local dropped = first_entry(t, function(_, sum)
    return between(sum, t.base) > size
  end)
  t.base, t.skipped, t.length = (t.base + size) % SUMS_END, t.skipped + dropped, t.length - dropped
  t.total, t.used = t.total - size, t.used - size
  if t.length == 0 then
    t.newest = math.max(now, t.forgotten) - t.period
  end
  return true
end

-- Adds `by` to the sums of the entries from `first` up to `last`, and puts them `on` places further.
local function add_to_sums(t, first, last, by, on)
  if first > last then
    return
  end
  local raw = redis.call('GETRANGE', t.key, place_of(t, first), place_of(t, last + 1) - 1)
  local entries = {}
  for place = 1, #raw, ENTRY do
    local at, sum = struct.unpack('<dd', raw, place)
    entries[#entries + 1] = struct.pack('<dd', at, (sum + by) % SUMS_END)
  end
  redis.call('SETRANGE', t.key, place_of(t, first + on), table.concat(entries))
end

-- Takes it out of the entry that a receipt is for. The sums on the shorter side of it follow: those after it fall, or those before it
-- rise, and the base with them.
function sliding_log.back(t, size)
  if t.is_anew or now - t.mark_at >= t.period then
    return false
  end
  local number = first_entry(t, function(at)
    return at >= t.mark_at
  end)
  local at, sum = 0, 0
  if number < t.length then
    at, sum = entry(t, number)
  end
  if at ~= t.mark_at then
    return false
  end
  local before = t.base
  if number > 0 then
    before = select(2, entry(t, number - 1))
  end
  local cost = between(sum, before)
  local by = math.min(size, cost)
  local last, is_all = t.length - 1, by == cost
  if number > last / 2 then
    if not is_all then
      write_entry(t, number, at, (sum - by) % SUMS_END)
    end
    add_to_sums(t, number + 1, last, -by, is_all and -1 or 0)
    t.sum = (t.sum - by) % SUMS_END
  else
    add_to_sums(t, 0, number - 1, by, is_all and 1 or 0)
    t.base = (t.base + by) % SUMS_END
    t.skipped = t.skipped + (is_all and 1 or 0)
  end
  t.length = t.length - (is_all and 1 or 0)
  t.total, t.used, t.raw = t.total - by, t.used - by, ''
  if is_all and number == last then
    t.newest = t.length > 0 and entry(t, t.length - 1) or math.max(now, t.forgotten) - t.period
  end
  return by > 0
end

function sliding_log.counts(t)
  return t.used > 0
end

function sliding_log.reset(t)
  t.length, t.skipped, t.base, t.total, t.used, t.sum, t.gone, t.forgotten = 0, 0, 0, 0, 0, 0, 0, 0
end
