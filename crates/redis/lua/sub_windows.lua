-- Sub-windows: `extra` parts of `period` each, and one more, because the oldest counts in full; at most `depth` in them.
--
-- State, packed as doubles: when it was born, the newest part, then number and count of every part that has one, oldest first.

-- The most that is counted: 2^52.
local MOST_IN_PARTS = 4503599627370496

local function sub_windows_read(t)
  local raw = redis.call('GET', t.key)
  local tick, parts, counts, used = math.floor(now / t.period), {}, {}, 0
  t.tick, t.parts, t.counts = tick, parts, counts
  if not raw then
    t.newest, t.oldest, t.used = tick, tick, 0
    return
  end
  local all = { struct.unpack('<' .. string.rep('d', #raw / 8), raw) }
  local newest, ahead = all[2], all[2] * t.period - now > leap
  if ahead then
    newest, all[1] = tick, now
  end
  local oldest = math.max(tick, newest) - t.extra
  for i = 3, #all - 2, 2 do -- after the last pair comes where struct.unpack stopped
    local part = ahead and tick or all[i]
    parts[#parts + 1], counts[#counts + 1] = part, all[i + 1]
    if part >= oldest then
      used = used + all[i + 1]
    end
  end
  t.known, t.born, t.newest, t.oldest, t.used = true, all[1], newest, oldest, used
end

local function sub_windows_fits(t, size)
  return t.newest <= t.tick and t.used + size <= t.depth
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
local function sub_windows_write(t)
  local all = { t.born, t.newest }
  for i = 1, #t.parts do
    if t.counts[i] > 0 and t.parts[i] >= t.newest - t.extra then
      all[#all + 1], all[#all + 2] = t.parts[i], t.counts[i]
    end
  end
  local raw = struct.pack('<' .. string.rep('d', #all), unpack(all))
  redis.call('SET', t.key, raw, 'PX', expiry(forgotten(t) * t.period - now))
end

local function sub_windows_take(t, size)
  local part, last = math.max(t.tick, t.newest), #t.parts
  size = math.min(size, MOST_IN_PARTS - t.used)
  if t.parts[last] == part then
    t.counts[last] = t.counts[last] + size
  else
    t.parts[last + 1], t.counts[last + 1] = part, size
  end
  t.newest, t.used = part, t.used + size
  sub_windows_write(t)
end

-- The first part in which it would fit: when enough of the oldest have left.
local function part_with_room(t, size)
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

-- For a clock that was put back there is nothing left, whatever is used.
local function sub_windows_tell(t, fits)
  return t.newest <= t.tick and t.used or math.max(t.used, t.depth), forgotten(t), fits and t.tick or part_with_room(t, t.cost)
end

local sub_windows = {
  read = sub_windows_read,
  fits = sub_windows_fits,
  take = sub_windows_take,
  tell = sub_windows_tell,
}

-- Only for changes.

sub_windows.write = sub_windows_write

function sub_windows.rest(t)
  return t.newest <= t.tick and math.max(t.depth - t.used, 0) or 0
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

function sub_windows.counts(t)
  return t.used > 0
end

-- So long ago that it is fresh even for a clock that is put back.
function sub_windows.reset(t)
  t.newest, t.parts, t.counts, t.used = -MOST_IN_PARTS, {}, {}, 0
end
