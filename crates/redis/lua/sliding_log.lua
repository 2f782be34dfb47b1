-- The sliding window log: everything admitted in the last `period`, at most `depth` of it.
--
-- State: a list. Every element but the last is an admission, oldest first, packed as two doubles: when, and how much. The last one
-- holds their sum, when the list was born, and by when those that are no longer there had left: for a clock that is put back they may
-- still count, so nothing fits before that. A list, because it grows at one end and shrinks at the other; it never has
-- more than `depth` elements and that one.

-- The most that is logged: 2^52.
local MOST_LOGGED = 4503599627370496

local function entry(raw)
  local at, cost = struct.unpack('<dd', raw)
  return at, cost
end

-- The last element.
local function pack_sum(t)
  return struct.pack('<ddd', t.total, t.born, t.forgotten)
end

-- Before this moment nothing fits.
local function edge(t)
  return math.max(t.newest, t.forgotten)
end

-- Calls `visit(at, cost)` for one admission after another, oldest first, as long as it says so.
local function each_entry(t, visit)
  local first = 0
  while first < t.length do
    local chunk = redis.call('LRANGE', t.key, first, math.min(first + 31, t.length - 1))
    for i = 1, #chunk do
      if not visit(entry(chunk[i])) then
        return
      end
    end
    first = first + #chunk
  end
end

-- Takes everything as entered now.
local function log_anew(t)
  redis.call('DEL', t.key)
  t.length, t.newest, t.born, t.forgotten = 1, now, now, 0
  redis.call('RPUSH', t.key, struct.pack('<dd', now, t.total), pack_sum(t))
  redis.call('PEXPIRE', t.key, expiry(t.period))
end

local function sliding_log_read(t)
  local tail = redis.call('LRANGE', t.key, -2, -1)
  t.gone, t.newest, t.length, t.total, t.used, t.forgotten = 0, now - t.period, 0, 0, 0, 0
  if #tail == 0 then
    return
  end
  t.known = true
  t.total, t.born = entry(tail[#tail])
  t.used = t.total
  if #tail[#tail] > 16 then -- else an older version wrote it
    t.forgotten = struct.unpack('<d', tail[#tail], 17)
  end
  if t.forgotten - now > leap then
    t.forgotten = now
  end
  if #tail == 1 then
    t.newest = math.max(now, t.forgotten) - t.period
    return
  end
  t.length, t.newest = redis.call('LLEN', t.key) - 1, entry(tail[1])
  if t.newest - now > leap then
    log_anew(t)
  end
  -- Mostly the oldest has not left, and there is no need to look at the others.
  if now - entry(redis.call('LINDEX', t.key, 0)) >= t.period then
    each_entry(t, function(at, cost)
      if now - at < t.period then
        return false
      end
      t.gone, t.used = t.gone + 1, t.used - cost
      return true
    end)
  end
end

local function sliding_log_fits(t, size)
  return edge(t) <= now and t.used + size <= t.depth
end

-- What has left the window goes when something enters it.
local function forget(t)
  if t.gone > 0 then
    redis.call('LPOP', t.key, t.gone)
    t.length, t.total, t.gone, t.forgotten = t.length - t.gone, t.used, 0, math.max(now, t.forgotten)
  end
end

-- Lists are changed where they lie: there is nothing left to write but the sum, and when the key goes.
local function sliding_log_write(t)
  redis.call('LSET', t.key, -1, pack_sum(t))
  redis.call('PEXPIRE', t.key, expiry(edge(t) + t.period - now))
end

local function sliding_log_take(t, size)
  forget(t)
  size = math.min(size, MOST_LOGGED - t.total)
  local at = math.max(now, edge(t))
  t.total, t.used = t.total + size, t.used + size
  if t.length > 0 and t.newest == at then
    local _, cost = entry(redis.call('LINDEX', t.key, -2))
    redis.call('LSET', t.key, -2, struct.pack('<dd', at, cost + size))
    redis.call('LSET', t.key, -1, pack_sum(t))
  elseif t.known then
    redis.call('LSET', t.key, -1, struct.pack('<dd', at, size))
    redis.call('RPUSH', t.key, pack_sum(t))
    t.length = t.length + 1
  else
    redis.call('RPUSH', t.key, struct.pack('<dd', at, size), pack_sum(t))
    t.length, t.known = 1, true
  end
  t.newest = at
  redis.call('PEXPIRE', t.key, expiry(at + t.period - now))
end

-- When enough of the oldest have left for it to fit.
local function moment_with_room(t, size)
  local at, used = math.max(now, edge(t)), t.total
  each_entry(t, function(entered, cost)
    if used + size <= t.depth and at - entered < t.period then
      return false
    end
    at, used = math.max(at, entered + t.period), used - cost
    return true
  end)
  return at
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
  while size > 0 and t.length > 0 do
    local at, cost = entry(redis.call('LINDEX', t.key, 0))
    local by = math.min(size, cost)
    if by == cost then
      redis.call('LPOP', t.key)
      t.length = t.length - 1
    else
      redis.call('LSET', t.key, 0, struct.pack('<dd', at, cost - by))
    end
    size, t.total, t.used = size - by, t.total - by, t.used - by
  end
  if t.length == 0 then
    t.newest = math.max(now, t.forgotten) - t.period
  end
  return true
end

-- Entries are in order: the one that a receipt is for is found by halving.
function sliding_log.back(t, size)
  if now - t.mark_at >= t.period then
    return false
  end
  local low, high = 0, t.length - 1
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local at, cost = entry(redis.call('LINDEX', t.key, middle))
    if at == t.mark_at then
      local by = math.min(size, cost)
      if by == cost then
        redis.call('LSET', t.key, middle, '')
        redis.call('LREM', t.key, 1, '')
        t.length = t.length - 1
      else
        redis.call('LSET', t.key, middle, struct.pack('<dd', at, cost - by))
      end
      t.total, t.used = t.total - by, t.used - by
      return by > 0
    elseif at < t.mark_at then
      low = middle + 1
    else
      high = middle - 1
    end
  end
end

function sliding_log.counts(t)
  return t.used > 0
end

function sliding_log.reset(t)
  redis.call('LTRIM', t.key, -1, -1)
  t.length, t.total, t.used, t.forgotten = 0, 0, 0, 0
end
