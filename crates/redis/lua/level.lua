-- What token buckets, leaky buckets, fixed and paced windows have in common: a height above a floor that time raises.
--
-- State, packed as four doubles:
--   at      when it was written, in the algorithm's own ticks: microseconds, or numbers of windows
--   height  how far it was above the floor then, in units; below zero if it was below
--   fallen  how far returns have taken it down so far
--   born    when it was first written: a receipt from before is worth nothing
-- and then, if some of it is out on lease (token buckets and fixed windows only, see lease.lua), three more:
--   out     how much, in units
--   first, last: when the first and the last of the leases end, in microseconds
-- and four for each lease: who has it, the number of the call that it is from, how much it is, and when it ends.
--
-- Numbers of a tier: rate (units the floor rises by in a tick), depth (units in full), unit (units of one), period
-- (microseconds of a tick), extra (what may be owed already, for leaky buckets). All are whole and below 2^53, so every sum
-- below is exact: a product can only be inexact where it is larger than everything it is compared with.

-- The most that can be owed: 2^52.
local MOST_OWED = 4503599627370496

-- The tail of a state: its leases.
local function level_tail(t)
  t.tail = #t.leases > 0 and struct.pack('<ddd', t.out, t.first, t.last) .. table.concat(t.leases) or ''
end

local function level_lend(t, node, number, amount, ends)
  t.leases[#t.leases + 1] = struct.pack('<dddd', node, number, amount, ends)
  t.out, t.first, t.last = t.out + amount, math.min(t.first, ends), math.max(t.last, ends)
end

-- Goes through the leases. What has ended counts as spent at the moment when it did: nobody has said otherwise. (One that ends
-- later than any is made for is from a clock that was put back since, and ends now.) Takes out that of `node`, and tells its
-- number, amount and end.
local function level_leases(t, node)
  local ended, number, amount, ends = {}, nil, 0, 0
  t.leases, t.out, t.first, t.last = {}, 0, math.huge, 0
  for i = 25, #t.tail, 32 do
    local owner, its_number, its_amount, its_end = struct.unpack('<dddd', t.tail, i)
    if its_end <= now or its_end - now > leap then
      ended[#ended + 1] = { math.floor(math.min(its_end, now) / t.period), its_amount }
    elseif owner == node then
      number, amount, ends = its_number, its_amount, its_end
    else
      level_lend(t, owner, its_number, its_amount, its_end)
    end
  end
  table.sort(ended, function(one, other) return one[1] < other[1] end)
  for _, lease in ipairs(ended) do
    t.height = math.max(t.height, -t.rate * (t.tick - lease[1])) + lease[2]
  end
  level_tail(t)
  return number, amount, ends
end

local function level_read(t)
  local raw = redis.call('GET', t.key)
  local tick = math.floor(now / t.period)
  t.tick = tick
  if raw then
    local at, height, fallen, born = struct.unpack('<dddd', raw)
    if at * t.period - now > leap then
      at, born = tick, now
    end
    t.height, t.fallen, t.born, t.known = height - t.rate * (tick - at), fallen, born, true
    if #raw > 32 then
      local first
      t.tail = string.sub(raw, 33)
      t.out, first, t.last = struct.unpack('<ddd', t.tail)
      if first <= now or first - now > leap then
        level_leases(t)
      end
    end
  end
end

local function level_owed(t)
  return t.height > 0 and t.height or 0
end

local function level_write(t)
  local raw = struct.pack('<dddd', t.tick, t.height, t.fallen, t.born) .. t.tail
  -- What is out on lease may be spent in the last moment, and is paid off only then. At a rate of zero that is never.
  local paid = t.rate > 0 and (t.tick + math.ceil((level_owed(t) + t.out) / t.rate)) * t.period or math.huge
  local later = t.out > 0 and t.last - now or 0
  -- A clock that is put back into a window finds what was used there.
  local margin = t.period > 1 and leap or 0
  redis.call('SET', t.key, raw, 'PX', expiry(paid - now + later + margin))
end

local function level_take(t, size)
  t.height = math.min(level_owed(t) + size, MOST_OWED)
  level_write(t)
end

-- What is out on lease is as good as owed: its holders may have spent it.
local function level_tell(t)
  return level_owed(t) + t.out, t.out, 0
end

-- Only for changes.

local function level_counts(t)
  return t.height > 0 or t.out > 0
end

-- Takes it down by up to `size`, whoever that belonged to.
local function level_lower(t, size)
  local by = math.min(size, t.height)
  t.height, t.fallen = t.height - by, t.fallen + by
  return by > 0
end

-- Where a receipt's mark is by now, above the floor.
local function level_mark(t)
  return t.mark_owed - (t.fallen - t.mark_fallen) - t.rate * (t.tick - t.mark_at)
end

-- Undoes an admission of `size`; what then lies below the floor is as good as on it. If it is the whole of the last one, and nothing
-- else has come back since, those below lie where they did, and need not hear of it.
local function level_undo(t, size)
  local is_undone = t.whole == 1 and t.fallen == t.mark_fallen and t.height == level_mark(t)
  t.height, t.fallen = t.height - size, t.fallen + (is_undone and 0 or size)
  return true
end

-- So far below the floor that it is fresh even for a clock that is put back. What is out on lease stays out.
local function level_reset(t)
  t.height, t.fallen = -MOST_OWED, 0
end

local function level_changes(algorithm)
  algorithm.counts, algorithm.lower, algorithm.reset, algorithm.write = level_counts, level_lower, level_reset, level_write
end
