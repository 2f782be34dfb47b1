-- What token buckets, leaky buckets, fixed and paced windows have in common: a height above a floor that time raises.
--
-- State, packed as four doubles:
--   at      when it was written, in the algorithm's own ticks: microseconds, or numbers of windows
--   owed    how far it was above the floor then, in units; below zero if it was below
--   fallen  how far returns have taken it down so far
--   born    when it was first written: a receipt from before is worth nothing
--
-- Numbers of a tier: rate (units the floor rises by in a tick), depth (units in full), unit (units of one), period
-- (microseconds of a tick), extra (what may be owed already, for leaky buckets). All are whole and below 2^53, so every sum
-- below is exact: a product can only be inexact where it is larger than everything it is compared with.
local level = {}

-- The most that can be owed.
local MOST = 4503599627370496 -- 2^52

function level.read(t)
  local raw = redis.call('GET', t.key)
  t.tick = math.floor(now / t.period)
  if not raw then
    t.height, t.fallen, t.born = 0, 0, now
    return
  end
  local at, owed
  at, owed, t.fallen, t.born = struct.unpack('<dddd', raw)
  if (at - t.tick) * t.period > leap then
    at, t.born = t.tick, now
  end
  t.known = true
  t.height = owed - t.rate * (t.tick - at)
end

function level.owed(t)
  return math.max(t.height, 0)
end

function level.raise(t, size)
  t.height = math.min(level.owed(t) + size, MOST)
end

-- Takes it down by up to `size`, whoever that belonged to.
function level.lower(t, size)
  local by = math.min(size, t.height)
  if by > 0 then
    t.height, t.fallen = t.height - by, t.fallen + by
    return true
  end
end

-- Undoes an admission of `size`; what then lies below the floor is as good as on it.
function level.undo(t, size)
  t.height, t.fallen = t.height - size, t.fallen + size
  return true
end

-- Where a receipt's mark is by now, above the floor.
function level.mark(t)
  return t.mark_owed - (t.fallen - t.mark_fallen) - t.rate * (t.tick - t.mark_at)
end

function level.write(t)
  local raw = struct.pack('<dddd', t.tick, t.height, t.fallen, t.born)
  if t.rate == 0 then
    redis.call('SET', t.key, raw)
    return
  end
  local paid = (t.tick + math.ceil(level.owed(t) / t.rate)) * t.period
  redis.call('SET', t.key, raw, 'PX', math.max(expiry(paid - now), 1))
end

function level.counts(t)
  return t.height > 0
end

-- So far below the floor that it is fresh even for a clock that is put back.
function level.reset(t)
  t.height, t.fallen, t.born = -MOST, 0, math.max(now, t.born + 1)
end

function level.tell(t)
  return level.owed(t), 0, 0
end
