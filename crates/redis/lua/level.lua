-- What token buckets, leaky buckets, fixed and paced windows have in common: a height above a floor that time raises.
--
-- State, packed as four doubles:
--   at      when it was written, in the algorithm's own ticks: microseconds, or numbers of windows
--   height  how far it was above the floor then, in units; below zero if it was below
--   fallen  how far returns have taken it down so far
--   born    when it was first written: a receipt from before is worth nothing
--
-- Numbers of a tier: rate (units the floor rises by in a tick), depth (units in full), unit (units of one), period
-- (microseconds of a tick), extra (what may be owed already, for leaky buckets). All are whole and below 2^53, so every sum
-- below is exact: a product can only be inexact where it is larger than everything it is compared with.

-- The most that can be owed: 2^52.
local MOST_OWED = 4503599627370496

local function level_read(t)
  local raw = redis.call('GET', t.key)
  local tick = math.floor(now / t.period)
  t.tick = tick
  if raw then
    local at, height, fallen, born = struct.unpack('<dddd', raw)
    if (at - tick) * t.period > leap then
      at, born = tick, now
    end
    t.height, t.fallen, t.born, t.known = height - t.rate * (tick - at), fallen, born, true
  end
end

local function level_owed(t)
  return t.height > 0 and t.height or 0
end

local function level_write(t)
  local raw = struct.pack('<dddd', t.tick, t.height, t.fallen, t.born)
  if t.rate == 0 then
    redis.call('SET', t.key, raw)
  else
    local paid = (t.tick + math.ceil(level_owed(t) / t.rate)) * t.period
    redis.call('SET', t.key, raw, 'PX', expiry(paid - now))
  end
end

local function level_take(t, size)
  t.height = math.min(level_owed(t) + size, MOST_OWED)
  level_write(t)
end

local function level_tell(t)
  return level_owed(t), 0, 0
end

-- Only for changes.

local function level_counts(t)
  return t.height > 0
end

-- Takes it down by up to `size`, whoever that belonged to.
local function level_lower(t, size)
  local by = math.min(size, t.height)
  t.height, t.fallen = t.height - by, t.fallen + by
  return by > 0
end

-- Undoes an admission of `size`; what then lies below the floor is as good as on it.
local function level_undo(t, size)
  t.height, t.fallen = t.height - size, t.fallen + size
  return true
end

-- Where a receipt's mark is by now, above the floor.
local function level_mark(t)
  return t.mark_owed - (t.fallen - t.mark_fallen) - t.rate * (t.tick - t.mark_at)
end

-- So far below the floor that it is fresh even for a clock that is put back.
local function level_reset(t)
  t.height, t.fallen = -MOST_OWED, 0
end

local function level_changes(algorithm)
  algorithm.counts, algorithm.lower, algorithm.reset, algorithm.write = level_counts, level_lower, level_reset, level_write
end
