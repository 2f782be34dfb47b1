-- Sub-windows: `extra` parts of `period` each, and one more, because the oldest counts in full; at most `depth` in them.
--
-- State, packed as doubles: when it was born, the newest part, then number and count of every part that has one, oldest first.
local sub_windows = {}

local MOST_IN_PARTS = 4503599627370496 -- 2^52

function sub_windows.read(t)
  local raw = redis.call('GET', t.key)
  t.tick, t.parts, t.counts, t.used = math.floor(now / t.period), {}, {}, 0
  if not raw then
    t.born, t.newest, t.oldest = now, t.tick, t.tick
    return
  end
  local all = { struct.unpack('<' .. string.rep('d', #raw / 8), raw) }
  t.known, t.born, t.newest = true, all[1], all[2]
  local ahead = (t.newest - t.tick) * t.period > leap
  if ahead then
    t.newest, t.born = t.tick, now
  end
  t.oldest = math.max(t.tick, t.newest) - t.extra
  for i = 3, #all - 2, 2 do -- after the last pair comes where struct.unpack stopped
    local part, count = ahead and t.tick or all[i], all[i + 1]
    t.parts[#t.parts + 1], t.counts[#t.counts + 1] = part, count
    if part >= t.oldest then
      t.used = t.used + count
    end
  end
end

function sub_windows.fits(t, size)
  return t.newest <= t.tick and t.used + size <= t.depth
end

function sub_windows.rest(t)
  return t.newest <= t.tick and math.max(t.depth - t.used, 0) or 0
end

function sub_windows.raise(t, size)
  local part, last = math.max(t.tick, t.newest), #t.parts
  size = math.min(size, MOST_IN_PARTS - t.used)
  if t.parts[last] == part then
    t.counts[last] = t.counts[last] + size
  else
    t.parts[last + 1], t.counts[last + 1] = part, size
  end
  t.newest, t.used = part, t.used + size
end

-- The oldest goes first.
function sub_windows.lower(t, size)
  local had = t.used
  for i = 1, #t.parts do
    if t.parts[i] >= t.oldest then
      local by = math.min(size, t.counts[i])
      t.counts[i], t.used, size = t.counts[i] - by, t.used - by, size - by
    end
  end
  return t.used < had
end

function sub_windows.back(t, size)
  for i = 1, #t.parts do
    if t.parts[i] == t.mark_at and t.mark_at >= t.oldest then
      local by = math.min(size, t.counts[i])
      t.counts[i], t.used = t.counts[i] - by, t.used - by
      return by > 0
    end
  end
end

-- The part that follows the last that counts.
local function forgotten(t)
  for i = #t.parts, 1, -1 do
    if t.counts[i] > 0 then
      return math.max(t.parts[i] + t.extra + 1, t.newest)
    end
  end
  return t.newest
end

-- What no longer counts beside the newest part is left out.
function sub_windows.write(t)
  local all = { t.born, t.newest }
  for i = 1, #t.parts do
    if t.counts[i] > 0 and t.parts[i] >= t.newest - t.extra then
      all[#all + 1], all[#all + 2] = t.parts[i], t.counts[i]
    end
  end
  local raw = struct.pack('<' .. string.rep('d', #all), unpack(all))
  redis.call('SET', t.key, raw, 'PX', math.max(expiry(forgotten(t) * t.period - now), 1))
end

function sub_windows.counts(t)
  return t.used > 0
end

function sub_windows.reset(t)
  t.newest, t.parts, t.counts, t.used, t.born = -MOST_IN_PARTS, {}, {}, 0, math.max(now, t.born + 1)
end

-- The first part in which it would fit: when enough of the oldest have left.
local function opening(t, size)
  local part, used = math.max(t.tick, t.newest), t.used
  for i = 1, #t.parts do
    if used + size <= t.depth then
      break
    elseif t.parts[i] >= t.oldest then
      used, part = used - t.counts[i], t.parts[i] + t.extra + 1
    end
  end
  return part
end

function sub_windows.tell(t, fits)
  return t.used, forgotten(t), fits and t.tick or opening(t, t.cost)
end
