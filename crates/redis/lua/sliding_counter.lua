-- The sliding window counter: two neighbouring windows of `period`, the older weighed by how much of it a trailing window
-- still covers; at most `depth`.
--
-- State, packed as four doubles: the number of the window, its count, that of the one before, and when it was born.

-- The most that is counted: 2^52.
local MOST_COUNTED = 4503599627370496

local function sliding_counter_read(t)
  local raw = redis.call('GET', t.key)
  local tick = math.floor(now / t.period)
  t.tick = tick
  if not raw then
    t.window, t.current, t.previous = tick, 0, 0
    return
  end
  local window, current, previous, born = struct.unpack('<dddd', raw)
  if window * t.period - now > leap then
    window, born = tick, now
  elseif tick == window + 1 then
    window, previous, current = tick, current, 0
  elseif tick > window then
    window, previous, current = tick, 0, 0
  end
  t.window, t.current, t.previous, t.born, t.known = window, current, previous, born, true
end

-- previous * (period - passed) <= (depth - current - size) * period; where a product is too large to be exact, by a hair more.
local function sliding_counter_fits(t, size)
  local room = t.depth - t.current - size
  if t.window > t.tick or room < 0 then
    return false
  end
  local covered = t.previous * ((t.tick + 1) * t.period - now)
  if covered > 9007199254740992 then
    covered = covered * 1.000000000000001
  end
  return covered <= room * t.period
end

local function sliding_counter_write(t)
  local windows = t.current > 0 and 2 or 1
  local raw = struct.pack('<dddd', t.window, t.current, t.previous, t.born)
  redis.call('SET', t.key, raw, 'PX', expiry((t.window + windows) * t.period - now))
end

local function sliding_counter_take(t, size)
  t.current = math.min(t.current + size, MOST_COUNTED)
  sliding_counter_write(t)
end

local function sliding_counter_tell(t)
  return t.window, t.current, t.previous
end

local sliding_counter = {
  read = sliding_counter_read,
  fits = sliding_counter_fits,
  take = sliding_counter_take,
  tell = sliding_counter_tell,
}

-- Only for changes.

sliding_counter.write = sliding_counter_write

function sliding_counter.rest(t)
  if t.window > t.tick then
    return 0
  end
  local weighed = math.ceil(t.previous * ((t.tick + 1) * t.period - now) / t.period)
  local left = math.max(t.depth - t.current - weighed, 0)
  return sliding_counter_fits(t, left) and left or math.max(left - 1, 0)
end

function sliding_counter.lower(t, size)
  local of_previous = math.min(size, t.previous)
  local of_current = math.min(size - of_previous, t.current)
  t.previous, t.current = t.previous - of_previous, t.current - of_current
  return of_previous + of_current > 0
end

function sliding_counter.back(t, size)
  if t.mark_at == t.window then
    size = math.min(size, t.current)
    t.current = t.current - size
  elseif t.mark_at == t.window - 1 then
    size = math.min(size, t.previous)
    t.previous = t.previous - size
  else
    return false
  end
  return size > 0
end

function sliding_counter.counts(t)
  return t.current + t.previous > 0
end

-- So long ago that it is fresh even for a clock that is put back.
function sliding_counter.reset(t)
  t.window, t.current, t.previous = -MOST_COUNTED, 0, 0
end
