-- The sliding window counter: two neighbouring windows of `period`, the older weighed by how much of it a trailing window
-- still covers; at most `depth`.
--
-- State, packed as four doubles: the number of the window, its count, that of the one before, and when it was born.
local sliding_counter = {}

local MOST_COUNTED = 4503599627370496 -- 2^52

function sliding_counter.read(t)
  local raw = redis.call('GET', t.key)
  t.tick = math.floor(now / t.period)
  if not raw then
    t.window, t.current, t.previous, t.born = t.tick, 0, 0, now
    return
  end
  t.window, t.current, t.previous, t.born = struct.unpack('<dddd', raw)
  t.known = true
  if (t.window - t.tick) * t.period > leap then
    t.window, t.born = t.tick, now
  elseif t.tick == t.window + 1 then
    t.window, t.previous, t.current = t.tick, t.current, 0
  elseif t.tick > t.window then
    t.window, t.previous, t.current = t.tick, 0, 0
  end
end

-- previous * (period - passed) <= (depth - current - size) * period; where a product is too large to be exact, by a hair more.
function sliding_counter.fits(t, size)
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

function sliding_counter.rest(t)
  if t.window > t.tick then
    return 0
  end
  local weighed = math.ceil(t.previous * ((t.tick + 1) * t.period - now) / t.period)
  local left = math.max(t.depth - t.current - weighed, 0)
  return sliding_counter.fits(t, left) and left or math.max(left - 1, 0)
end

function sliding_counter.raise(t, size)
  t.current = math.min(t.current + size, MOST_COUNTED)
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

function sliding_counter.write(t)
  local windows = t.current > 0 and 2 or 1
  local raw = struct.pack('<dddd', t.window, t.current, t.previous, t.born)
  redis.call('SET', t.key, raw, 'PX', math.max(expiry((t.window + windows) * t.period - now), 1))
end

function sliding_counter.counts(t)
  return t.current + t.previous > 0
end

function sliding_counter.reset(t)
  t.window, t.current, t.previous, t.born = -MOST_COUNTED, 0, 0, math.max(now, t.born + 1)
end

function sliding_counter.tell(t)
  return t.window, t.current, t.previous
end
